#include "reference/trainer/distinct.h"

#include <string.h>

static bool passes_on(const struct mp_plan *plan) {
    return mp_exchange_of(plan->exchange)->rounds > 1;
}

int mp_paths_create(struct mp_paths *paths, struct mp_arena *arena, struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(paths->planner, 0);
    size_t ranks = (size_t)plan->topology.ranks;
    if (!passes_on(plan))
        return MP_OK;
    paths->exchange = mp_exchange_of(plan->exchange);
    paths->steps = plan->degree;
    int count = paths->model->shape.layers * paths->steps;
    MP_TAKE(arena, paths->path, count);
    MP_TAKE(arena, paths->begin, (size_t)paths->steps * ranks * ranks);
    MP_TRY(mp_arena_check(arena, error));
    for (int i = 0; i < 2; i++)
        paths->transit[i].bytes = (size_t)paths->planner->setting.route_bytes;
    for (int i = 0; i < count; i++)
        MP_TRY(mp_exchange_path_create(paths->exchange, &plan->topology, paths->comm->rank,
                                       &paths->path[i], error));
    return MP_OK;
}

void mp_paths_destroy(struct mp_paths *paths) {
    for (int i = 0; paths->path && i < 2; i++)
        mp_rows_release(paths->model->device, &paths->transit[i]);
    for (int i = 0; paths->path && i < paths->model->shape.layers * paths->steps; i++)
        mp_exchange_path_destroy(&paths->path[i]);
}

/* rows [ranks][ranks] from each rank to each other in a step. */
static void count_rows(const struct mp_plan *plan, int step, int rows[]) {
    int ranks = plan->topology.ranks;
    memset(rows, 0, (size_t)ranks * (size_t)ranks * sizeof *rows);
    for (int source = 0; source < ranks; source++, rows += ranks) {
        for (int expert = 0; expert < plan->experts; expert++) {
            int parts;
            const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
            int64_t before = 0;
            for (const struct mp_dispatch_part *end = part + parts; part < end; part++) {
                int64_t all = plan->padding > 0 ? plan->padding : part->count;
                for (int32_t at = part->first; at < part->first + part->run; at++, before += all)
                    rows[plan->holder[at]] +=
                        (int)mp_plan_chunk(plan, source, expert, at, before, all, step);
            }
        }
    }
}

/* Where the blocks of all steps begin in their sources' send order. */
static void begin_blocks(const struct mp_plan *plan, int rows[]) {
    int ranks = plan->topology.ranks;
    for (int step = 0; step < plan->degree; step++)
        count_rows(plan, step, rows + step * ranks * ranks);
    for (int source = 0; source < ranks; source++) {
        int begin = 0;
        for (int i = 0; i < plan->degree * ranks; i++) {
            int *block = &rows[(i / ranks * ranks + source) * ranks + i % ranks];
            int next = begin + *block;
            *block = begin;
            begin = next;
        }
    }
}

/* Of all steps; rows that they have in transit. */
static int build_steps(struct mp_paths *paths, const struct mp_plan *plan, int64_t *transit,
                       struct mp_error *error) {
    struct mp_exchange_path *path = &paths->path[plan->layer * paths->steps];
    int code = MP_OK;
    *transit = 0;
    for (int step = 0; !code && step < plan->degree; step++) {
        count_rows(plan, step, paths->begin);
        code = mp_exchange_path_build(paths->exchange, &plan->topology, paths->comm->rank,
                                      paths->begin, &path[step], error);
        *transit += path[step].transit_rows;
    }
    return code;
}

/* The trainer has made room for what the first plan of the run says. */
static int check_first(const struct mp_paths *paths, const struct mp_plan *plan,
                       struct mp_error *error) {
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);
    if (exchange != paths->exchange)
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the exchange is %s, in the first plan of the run "
                       "it was %s",
                       (long long)plan->iteration, plan->layer, exchange->name,
                       paths->exchange ? paths->exchange->name : "in one round");
    if (plan->degree > paths->steps || (exchange->deduplicates && plan->degree < paths->steps))
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the exchange has degree %d, the first plan of "
                       "the run %d before its gate",
                       (long long)plan->iteration, plan->layer, plan->degree, paths->steps);
    return MP_OK;
}

int mp_paths_build(struct mp_paths *paths, int layer, struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(paths->planner, layer);
    if (!passes_on(plan))
        return MP_OK;
    MP_TRY(check_first(paths, plan, error));
    if (paths->exchange->deduplicates) { /* the rest is known when routes have places */
        begin_blocks(plan, paths->begin);
        return MP_OK;
    }
    int64_t rows;
    int code = build_steps(paths, plan, &rows, error);
    for (int i = 0; !code && i < 2; i++) {
        if (!mp_model_reserve_rows(paths->model, rows, rows + rows / 4, &paths->transit[i]))
            code = mp_fail(error, MP_ENOMEM,
                           "layer %d: no memory for %lld rows that this rank passes on twice over; "
                           "exchange flat takes none",
                           layer, (long long)rows);
    }
    return code;
}

const struct mp_exchange_path *mp_paths_of(const struct mp_paths *paths,
                                           const struct mp_operation *operation,
                                           struct mp_exchange_path *direct) {
    const struct mp_routing_step *step =
        &paths->model->state[operation->layer].routing.step[operation->step];
    if (passes_on(mp_planner_plan(paths->planner, operation->layer)))
        return &paths->path[operation->layer * paths->steps + operation->step];
    *direct = (struct mp_exchange_path){
        .ranks = paths->comm->ranks,
        .rounds = 1,
        .round = {{.send_rows = step->send_rows, .receive_rows = step->receive_rows}}};
    return direct;
}

void *mp_paths_transit(const struct mp_paths *paths, const struct mp_operation *operation,
                       int place) {
    const struct mp_rows *rows = &paths->transit[place];
    const struct mp_exchange_path *path = paths->path + operation->layer * paths->steps;
    int64_t first = 0;
    for (int step = 0; rows->memory && step < operation->step; step++)
        first += path[step].transit_rows;
    return rows->memory ? (char *)rows->memory + (size_t)first * rows->bytes : NULL;
}
