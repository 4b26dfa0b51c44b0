#include "harness/predict/what_if_steps.h"

#include <stdlib.h>
#include <string.h>

int mp_what_if_steps_create(int ranks, int experts, struct mp_what_if_steps *steps,
                            struct mp_error *error) {
    size_t all = (size_t)ranks;
    *steps = (struct mp_what_if_steps){.ranks = ranks};
    steps->step = calloc(all * all, sizeof *steps->step);
    steps->late = calloc(all, sizeof *steps->late);
    steps->is_late = calloc(all * (size_t)experts, sizeof *steps->is_late);
    if (steps->step && steps->late && steps->is_late)
        return MP_OK;
    mp_what_if_steps_destroy(steps);
    return mp_fail(error, MP_ENOMEM, "no memory for exchanges in steps between %d ranks", ranks);
}

void mp_what_if_steps_destroy(struct mp_what_if_steps *steps) {
    free(steps->step);
    free(steps->late);
    free(steps->is_late);
    *steps = (struct mp_what_if_steps){0};
}

/* ---- rows of steps ---- */

static void add_routes(struct mp_what_if_steps *steps, int group_size, int source, int holder,
                       bool late, double count) {
    int step = (holder / group_size - source / group_size + steps->steps) % steps->steps;
    struct mp_step *from = &steps->step[source * steps->steps + step];
    struct mp_step *to = &steps->step[holder * steps->steps + step];
    if (source == holder && late) {
        steps->late[holder] += count;
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
    steps->steps = plan->topology.ranks / plan->group_size;
    memset(steps->step, 0, ranks * (size_t)steps->steps * sizeof *steps->step);
    memset(steps->late, 0, ranks * sizeof *steps->late);
    memset(steps->is_late, 0, ranks * (size_t)plan->experts * sizeof *steps->is_late);
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *copy = &plan->fetch.item[i];
        if (copy->stage == MP_STAGE_AFTER_GATE)
            steps->is_late[(size_t)copy->expert * ranks + (size_t)copy->to] = true;
    }
    for (int source = 0; source < plan->topology.ranks; source++)
        for (int expert = 0; expert < plan->experts; expert++) {
            int parts;
            const bool *late = steps->is_late + (size_t)expert * ranks;
            const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
            for (int i = 0; i < parts; i++)
                for (int32_t at = part[i].first; at < part[i].first + part[i].run; at++)
                    add_routes(steps, plan->group_size, source, plan->holder[at],
                               late[plan->holder[at]], part[i].count);
        }
}

int mp_what_if_steps_calls(const struct mp_what_if_steps *steps, int rank) {
    int calls = steps->late[rank] > 0;
    for (int s = 0; s < steps->steps; s++)
        calls += steps->step[rank * steps->steps + s].routes > 0;
    return calls;
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

static double rows_of(const struct mp_step *step) {
    return later(step->sent, step->received);
}

static void follow(const struct mp_step step[], int count, double late, const struct lines *lines,
                   struct mp_steps_seconds *seconds) {
    *seconds = (struct mp_steps_seconds){.expert = at_line(lines->expert, late)};
    for (int s = 0; s < count; s++) {
        seconds->there += at_line(lines->there, rows_of(&step[s]));
        seconds->expert += at_line(lines->expert, step[s].routes);
        seconds->back += at_line(lines->back, rows_of(&step[s]));
    }
}

static void overlap(const struct mp_step step[], int count, double late, bool late_first,
                    double copies, const struct lines *lines, struct mp_steps_seconds *seconds) {
    double first = at_line(lines->there, rows_of(&step[0])), arrived = 0, all = 0;
    double done = 0, returned;
    for (int s = 0; s < count; s++)
        all += at_line(lines->there, rows_of(&step[s]));
    returned = all; /* returns pass behind all that goes there */
    for (int s = 0; s < count; s++) {
        arrived += at_line(lines->there, rows_of(&step[s]));
        done = later(done, arrived);
        if (step[s].waits)
            done = later(done, copies);
        if (s == 0 && late_first)
            done += at_line(lines->expert, late);
        done += at_line(lines->expert, step[s].routes);
        returned = later(returned, done) + at_line(lines->back, rows_of(&step[s]));
    }
    if (late > 0 && !late_first)
        done = later(done, copies) + at_line(lines->expert, late);
    *seconds = (struct mp_steps_seconds){first, done - first, later(returned - done, 0)};
}

void mp_what_if_steps_time(const struct mp_what_if_steps *steps, int rank, int direction,
                           const struct mp_other_rates *rates, double copies,
                           struct mp_steps_seconds *seconds) {
    const struct mp_step *step = steps->step + (size_t)rank * (size_t)steps->steps;
    bool backward = direction == MP_BACKWARD;
    const struct lines lines = {&(backward ? rates->combine : rates->dispatch)[direction],
                                &(backward ? rates->dispatch : rates->combine)[direction],
                                &rates->expert[direction]};
    if (rates->hides)
        overlap(step, steps->steps, steps->late[rank], backward, copies, &lines, seconds);
    else
        follow(step, steps->steps, steps->late[rank], &lines, seconds);
}
