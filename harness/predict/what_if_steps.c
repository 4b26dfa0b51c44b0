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
    steps->own_experts = calloc(all, sizeof *steps->own_experts);
    steps->is_late = calloc(all * (size_t)experts, sizeof *steps->is_late);
    if (steps->step && steps->own && steps->own_experts && steps->is_late)
        return MP_OK;
    mp_what_if_steps_destroy(steps);
    return mp_fail(error, MP_ENOMEM, "no memory for exchanges in steps between %d ranks", ranks);
}

void mp_what_if_steps_destroy(struct mp_what_if_steps *steps) {
    free(steps->step);
    free(steps->own);
    free(steps->own_experts);
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

static void mark_late(const struct mp_plan *plan, int expert, int rank, bool late[],
                      struct mp_what_if_steps *steps) {
    late[rank] = true;
    steps->own_experts[rank] += mp_plan_routes_to(plan, rank, expert, rank) > 0;
}

void mp_what_if_steps_split(const struct mp_plan *plan, struct mp_what_if_steps *steps) {
    size_t ranks = (size_t)plan->topology.ranks;
    steps->steps = mp_plan_steps(plan);
    steps->group_size = plan->group_size;
    memset(steps->step, 0, ranks * (size_t)steps->steps * sizeof *steps->step);
    memset(steps->own, 0, ranks * sizeof *steps->own);
    memset(steps->own_experts, 0, ranks * sizeof *steps->own_experts);
    memset(steps->is_late, 0, ranks * (size_t)plan->experts * sizeof *steps->is_late);
    for (struct mp_late_copy copy = {.expert = -1}; mp_plan_next_late(plan, &copy);)
        mark_late(plan, copy.expert, copy.rank, steps->is_late + (size_t)copy.expert * ranks,
                  steps);
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

int mp_what_if_steps_calls(const struct mp_what_if_steps *steps, int rank) {
    int calls = steps->own[rank] > 0;
    for (int s = 0; s < steps->steps; s++)
        calls += steps->step[rank * steps->steps + s].routes > 0;
    return calls;
}

/* ---- seconds ---- */

static double later(double one, double other) {
    return one > other ? one : other;
}

/* A rank in one direction. */
struct passing {
    const struct mp_other_rates *rates;
    const struct mp_what_if_step *step;
    const struct mp_fitted_line *there, *back; /* towards the experts, and back */
    int way;
    double experts, own; /* with routes that travel; s of own routes */
};

static double compute(const struct passing *passing, int step) {
    return mp_experts_seconds(passing->rates, passing->way, passing->step[step].routes,
                              passing->experts);
}

/* A step of a rank's exchange: it has no message for itself. */
static double exchange(const struct mp_what_if_steps *steps, const struct passing *passing,
                       int number, const struct mp_fitted_line *line) {
    const struct mp_what_if_step *step = &passing->step[number];
    double rows = later(step->sent, step->received);
    double messages = number ? steps->group_size : steps->group_size - 1;
    return rows > 0 ? mp_fitted_at(line, rows) - line->fixed * (1 - messages / (steps->ranks - 1))
                    : 0;
}

static void follow(const struct mp_what_if_steps *steps, const struct passing *passing,
                   struct mp_stepped_seconds *seconds) {
    *seconds = (struct mp_stepped_seconds){.expert = passing->own};
    for (int s = 0; s < steps->steps; s++) {
        seconds->there += exchange(steps, passing, s, passing->there);
        seconds->expert += compute(passing, s);
        seconds->back += exchange(steps, passing, s, passing->back);
    }
}

static void overlap(const struct mp_what_if_steps *steps, const struct passing *passing,
                    double copies, struct mp_stepped_seconds *seconds) {
    bool own_first = passing->way == MP_BACKWARD;
    double first = exchange(steps, passing, 0, passing->there), arrived = 0, returned = 0;
    double done = own_first ? passing->own : 0;
    for (int s = 0; s < steps->steps; s++) /* returns pass behind all that goes there */
        returned += exchange(steps, passing, s, passing->there);
    for (int s = 0; s < steps->steps; s++) {
        arrived += exchange(steps, passing, s, passing->there);
        done = later(done, arrived);
        if (passing->step[s].waits)
            done = later(done, copies);
        done += compute(passing, s);
        returned = later(returned, done) + exchange(steps, passing, s, passing->back);
    }
    if (passing->own > 0 && !own_first)
        done = later(done, copies) + passing->own;
    *seconds = (struct mp_stepped_seconds){first, done - first, later(returned - done, 0)};
}

void mp_what_if_steps_time(const struct mp_what_if_steps *steps, int rank, int direction,
                           const struct mp_other_rates *rates, double experts, double copies,
                           struct mp_stepped_seconds *seconds) {
    bool backward = direction == MP_BACKWARD;
    double own_experts = steps->own_experts[rank];
    const struct passing passing = {
        .rates = rates,
        .step = steps->step + (size_t)rank * (size_t)steps->steps,
        .there = &(backward ? rates->combine : rates->dispatch)[direction],
        .back = &(backward ? rates->dispatch : rates->combine)[direction],
        .way = direction,
        .experts = experts - own_experts,
        .own = mp_experts_seconds(rates, direction, steps->own[rank], own_experts)};
    if (rates->hides)
        overlap(steps, &passing, copies, seconds);
    else
        follow(steps, &passing, seconds);
}
