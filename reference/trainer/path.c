/* Rows that other ranks pass on: the paths of an exchange in several rounds, and memory for what is
 * on its way through this rank.  One layer's rows are under way at a time, all of their steps
 * perhaps, each of which has places of its own. */
#include <string.h>

#include "reference/trainer/internal.h"

static bool passes_on(const struct mp_plan *plan) {
    return mp_exchange_of(plan->exchange)->rounds > 1;
}

int mp_trainer_create_paths(struct mp_trainer *trainer, struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, 0);
    size_t ranks = (size_t)plan->topology.ranks;
    int code = MP_OK;
    if (!passes_on(plan))
        return MP_OK;
    trainer->path_exchange = mp_exchange_of(plan->exchange);
    trainer->path_steps = plan->degree;
    int paths = trainer->job.layers * trainer->path_steps;
    MP_TAKE(&trainer->arena, trainer->path, paths);
    MP_TAKE(&trainer->arena, trainer->path_rows, (size_t)trainer->path_steps * ranks * ranks);
    if (trainer->arena.lacking)
        return mp_arena_check(&trainer->arena, error);
    if (trainer->path_exchange->deduplicates)
        code = mp_trainer_create_distinct(trainer, error);
    for (int i = 0; i < 2; i++)
        trainer->transit[i].bytes = (size_t)trainer->setting.route_bytes;
    for (int i = 0; !code && i < paths; i++)
        code = mp_exchange_path_create(trainer->path_exchange, &plan->topology, trainer->comm->rank,
                                       &trainer->path[i], error);
    return code;
}

void mp_trainer_destroy_paths(struct mp_trainer *trainer) {
    for (int i = 0; trainer->path && i < 2; i++)
        mp_rows_release(trainer->device, &trainer->transit[i]);
    mp_trainer_destroy_distinct(trainer);
    for (int i = 0; trainer->path && i < trainer->job.layers * trainer->path_steps; i++)
        mp_exchange_path_destroy(&trainer->path[i]);
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
                        (int)mp_plan_chunk(plan, source, expert, before, all, step);
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
static int build_steps(struct mp_trainer *trainer, const struct mp_plan *plan, int64_t *transit,
                       struct mp_error *error) {
    struct mp_exchange_path *path = &trainer->path[plan->layer * trainer->path_steps];
    int code = MP_OK;
    *transit = 0;
    for (int step = 0; !code && step < plan->degree; step++) {
        count_rows(plan, step, trainer->path_rows);
        code = mp_exchange_path_build(trainer->path_exchange, &plan->topology, trainer->comm->rank,
                                      trainer->path_rows, &path[step], error);
        *transit += path[step].transit_rows;
    }
    return code;
}

/* The trainer has made room for what the first plan of the run says. */
static int check_first(const struct mp_trainer *trainer, const struct mp_plan *plan,
                       struct mp_error *error) {
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);
    if (exchange != trainer->path_exchange)
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the exchange is %s, in the first plan of the run "
                       "it was %s",
                       (long long)plan->iteration, plan->layer, exchange->name,
                       trainer->path_exchange ? trainer->path_exchange->name : "in one round");
    if (plan->degree > trainer->path_steps ||
        (exchange->deduplicates && plan->degree < trainer->path_steps))
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the exchange has degree %d, the first plan of "
                       "the run %d before its gate",
                       (long long)plan->iteration, plan->layer, plan->degree, trainer->path_steps);
    return MP_OK;
}

int mp_trainer_build_path(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    if (!passes_on(plan))
        return MP_OK;
    int code = check_first(trainer, plan, error);
    if (code)
        return code;
    if (trainer->path_exchange->deduplicates) { /* the rest is known when routes have places */
        begin_blocks(plan, trainer->path_rows);
        return MP_OK;
    }
    int64_t rows;
    code = build_steps(trainer, plan, &rows, error);
    for (int i = 0; !code && i < 2; i++) {
        struct mp_rows *transit = &trainer->transit[i];
        int64_t before = mp_rows_bytes(transit, 0);
        if (!mp_rows_reserve(trainer->device, trainer->model.stream, rows, rows + rows / 4,
                             transit))
            code = mp_fail(error, MP_ENOMEM,
                           "layer %d: no memory for %lld rows that this rank passes on twice over; "
                           "exchange flat takes none",
                           layer, (long long)rows);
        trainer->model.row_bytes += mp_rows_bytes(transit, 0) - before;
    }
    return code;
}

const struct mp_exchange_path *mp_trainer_path(const struct mp_trainer *trainer,
                                               const struct mp_operation *operation,
                                               struct mp_exchange_path *direct) {
    const struct mp_routing_step *step =
        &trainer->model.state[operation->layer].routing.step[operation->step];
    if (passes_on(mp_planner_plan(&trainer->planner, operation->layer)))
        return &trainer->path[operation->layer * trainer->path_steps + operation->step];
    *direct = (struct mp_exchange_path){
        .ranks = trainer->comm->ranks,
        .rounds = 1,
        .round = {{.send_rows = step->send_rows, .receive_rows = step->receive_rows}}};
    return direct;
}

void *mp_trainer_transit(const struct mp_trainer *trainer, const struct mp_operation *operation,
                         int place) {
    const struct mp_rows *rows = &trainer->transit[place];
    const struct mp_exchange_path *path = trainer->path + operation->layer * trainer->path_steps;
    int64_t first = 0;
    for (int step = 0; rows->memory && step < operation->step; step++)
        first += path[step].transit_rows;
    return rows->memory ? (char *)rows->memory + (size_t)first * rows->bytes : NULL;
}
