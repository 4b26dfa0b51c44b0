#include "harness/predict/what_if_steps.h"

#include <stdlib.h>
#include <string.h>

#include "reference/schedule/schedule.h"

int mp_what_if_steps_create(int ranks, int experts, struct mp_what_if_steps *steps,
                            struct mp_error *error) {
    size_t all = (size_t)ranks;
    *steps = (struct mp_what_if_steps){.ranks = ranks};
    steps->step = calloc(all * all, sizeof *steps->step);
    steps->own = calloc(all, sizeof *steps->own);
    steps->is_late = calloc(all * (size_t)experts, sizeof *steps->is_late);
    if (steps->step && steps->own && steps->is_late)
        return MP_OK;
    mp_what_if_steps_destroy(steps);
    return mp_fail(error, MP_ENOMEM, "no memory for exchanges in steps between %d ranks", ranks);
}

void mp_what_if_steps_destroy(struct mp_what_if_steps *steps) {
    free(steps->step);
    free(steps->own);
    free(steps->is_late);
    *steps = (struct mp_what_if_steps){0};
}

/* ---- rows of steps ---- */

static void add_routes(const struct mp_plan *plan, struct mp_what_if_steps *steps, int source,
                       int holder, bool late, double count) {
    int step = mp_plan_step(plan, source, holder);
    struct mp_what_if_step *from = &steps->step[source * steps->steps + step];
    struct mp_what_if_step *to = &steps->step[holder * steps->steps + step];
    if (source == holder && late) {
        steps->own[holder] += count;
        return;
    }
    to->routes += count;
    to->waits |= late && count > 0;
    if (source != holder) {
        from->sent += count;
        to->received += count;
    }
}

void mp_what_if_steps_split(const struct mp_plan *plan, struct mp_what_if_steps *steps) {
    size_t ranks = (size_t)plan->topology.ranks;
    steps->steps = mp_plan_steps(plan);
    memset(steps->step, 0, ranks * (size_t)steps->steps * sizeof *steps->step);
    memset(steps->own, 0, ranks * sizeof *steps->own);
    memset(steps->is_late, 0, ranks * (size_t)plan->experts * sizeof *steps->is_late);
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *copy = &plan->fetch.item[i];
        bool *late = steps->is_late + (size_t)copy->expert * ranks;
        if (copy->stage != MP_STAGE_AFTER_GATE)
            continue;
        late[copy->to] = true;
        late[copy->from] |= mp_plan_stays(plan, copy->expert);
    }
    for (int source = 0; source < plan->topology.ranks; source++)
        for (int expert = 0; expert < plan->experts; expert++) {
            int parts;
            const bool *late = steps->is_late + (size_t)expert * ranks;
            const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
            for (int i = 0; i < parts; i++)
                for (int32_t at = part[i].first; at < part[i].first + part[i].run; at++)
                    add_routes(plan, steps, source, plan->holder[at], late[plan->holder[at]],
                               part[i].count);
        }
}

void mp_what_if_steps_count(const struct mp_what_if_steps *steps, int rank, int *calls,
                            int *exchanges) {
    const struct mp_what_if_step *step = steps->step + (size_t)rank * (size_t)steps->steps;
    *calls = steps->own[rank] > 0;
    *exchanges = 0;
    for (int s = 0; s < steps->steps; s++) {
        *calls += step[s].routes > 0;
        *exchanges += step[s].sent > 0 || step[s].received > 0;
    }
}

/* ---- seconds ---- */

static double at_line(const struct mp_fitted_line *line, double x) {
    return x > 0 ? mp_fitted_at(line, x) : 0;
}

static double later(double one, double other) {
    return one > other ? one : other;
}

/* A rank's lines in one direction: towards the experts, back, and theirs. */
struct lines {
    const struct mp_fitted_line *there, *back, *expert;
};

static double rows_of(const struct mp_what_if_step *step) {
    return later(step->sent, step->received);
}

static void follow(const struct mp_what_if_step step[], int count, double own,
                   const struct lines *lines, struct mp_stepped_seconds *seconds) {
    *seconds = (struct mp_stepped_seconds){.expert = at_line(lines->expert, own)};
    for (int s = 0; s < count; s++) {
        seconds->there += at_line(lines->there, rows_of(&step[s]));
        seconds->expert += at_line(lines->expert, step[s].routes);
        seconds->back += at_line(lines->back, rows_of(&step[s]));
    }
}

static void overlap(const struct mp_what_if_step step[], int count, double own, bool own_first,
                    double copies, const struct lines *lines, struct mp_stepped_seconds *seconds) {
    double first = at_line(lines->there, rows_of(&step[0])), arrived = 0, all = 0;
    double done = own_first ? at_line(lines->expert, own) : 0, returned;
    for (int s = 0; s < count; s++)
        all += at_line(lines->there, rows_of(&step[s]));
    returned = all; /* returns pass behind all that goes there */
    for (int s = 0; s < count; s++) {
        arrived += at_line(lines->there, rows_of(&step[s]));
        done = later(done, arrived);
        if (step[s].waits)
            done = later(done, copies);
        done += at_line(lines->expert, step[s].routes);
        returned = later(returned, done) + at_line(lines->back, rows_of(&step[s]));
    }
    if (own > 0 && !own_first)
        done = later(done, copies) + at_line(lines->expert, own);
    *seconds = (struct mp_stepped_seconds){first, done - first, later(returned - done, 0)};
}

void mp_what_if_steps_time(const struct mp_what_if_steps *steps, int rank, int direction,
                           const struct mp_other_rates *rates, double copies,
                           struct mp_stepped_seconds *seconds) {
    const struct mp_what_if_step *step = steps->step + (size_t)rank * (size_t)steps->steps;
    bool backward = direction == MP_BACKWARD;
    const struct lines lines = {&(backward ? rates->combine : rates->dispatch)[direction],
                                &(backward ? rates->dispatch : rates->combine)[direction],
                                &rates->expert[direction]};
    if (rates->hides)
        overlap(step, steps->steps, steps->own[rank], backward, copies, &lines, seconds);
    else
        follow(step, steps->steps, steps->own[rank], &lines, seconds);
}
