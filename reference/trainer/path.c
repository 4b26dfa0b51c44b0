/* Rows that other ranks pass on: the paths of an exchange in several rounds, and memory for what is
 * on its way through this rank.  One step of such an exchange is under way at a time, whichever
 * layer's it is. */
#include <stdlib.h>
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
    trainer->path = calloc((size_t)trainer->job.layers, sizeof *trainer->path);
    trainer->path_rows = calloc(ranks * ranks, sizeof *trainer->path_rows);
    if (!trainer->path || !trainer->path_rows)
        return mp_fail(error, MP_ENOMEM, "no memory for the paths of %d layers",
                       trainer->job.layers);
    if (trainer->path_exchange->deduplicates)
        code = mp_trainer_create_distinct(trainer, error);
    for (int i = 0; i < 2; i++)
        trainer->transit[i].bytes = (size_t)trainer->setting.route_bytes;
    for (int l = 0; !code && l < trainer->job.layers; l++)
        code = mp_exchange_path_create(trainer->path_exchange, &plan->topology, trainer->comm->rank,
                                       &trainer->path[l], error);
    return code;
}

void mp_trainer_destroy_paths(struct mp_trainer *trainer) {
    for (int i = 0; trainer->path && i < 2; i++)
        mp_rows_release(trainer->device, &trainer->transit[i]);
    mp_trainer_destroy_distinct(trainer);
    for (int l = 0; trainer->path && l < trainer->job.layers; l++)
        mp_exchange_path_destroy(&trainer->path[l]);
    free(trainer->path);
    free(trainer->path_rows);
}

/* rows [ranks][ranks] from each rank to each other. */
static void count_rows(const struct mp_plan *plan, int rows[]) {
    int ranks = plan->topology.ranks;
    memset(rows, 0, (size_t)ranks * (size_t)ranks * sizeof *rows);
    for (int source = 0; source < ranks; source++, rows += ranks) {
        const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
        for (int64_t i = begin[0]; i < begin[plan->experts]; i++) {
            const struct mp_dispatch_part *part = &plan->part[i];
            for (int32_t at = part->first; at < part->first + part->run; at++)
                rows[plan->holder[at]] += (int)(plan->padding > 0 ? plan->padding : part->count);
        }
    }
}

/* From rows of blocks to where each is in its source's send order. */
static void begin_blocks(int ranks, int rows[]) {
    for (int source = 0; source < ranks; source++, rows += ranks) {
        int begin = 0;
        for (int to = 0; to < ranks; to++) {
            int next = begin + rows[to];
            rows[to] = begin;
            begin = next;
        }
    }
}

int mp_trainer_build_path(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    if (!passes_on(plan))
        return MP_OK;
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);
    struct mp_exchange_path *path = &trainer->path[layer];
    if (exchange != trainer->path_exchange)
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the exchange is %s, in the first plan of the run "
                       "it was %s",
                       (long long)plan->iteration, layer, exchange->name,
                       trainer->path_exchange ? trainer->path_exchange->name : "in one round");
    count_rows(plan, trainer->path_rows);
    if (exchange->deduplicates) { /* the rest is known when routes have places */
        begin_blocks(plan->topology.ranks, trainer->path_rows);
        return MP_OK;
    }
    int code = mp_exchange_path_build(exchange, &plan->topology, trainer->comm->rank,
                                      trainer->path_rows, path, error);
    for (int i = 0; !code && i < 2; i++) {
        struct mp_rows *transit = &trainer->transit[i];
        int64_t before = mp_rows_bytes(transit, 0);
        if (!mp_rows_reserve(trainer->device, trainer->model.stream, path->transit_rows,
                             path->transit_rows + path->transit_rows / 4, transit))
            code = mp_fail(error, MP_ENOMEM,
                           "layer %d: no memory for %lld rows that this rank passes on twice over; "
                           "exchange flat takes none",
                           layer, (long long)path->transit_rows);
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
        return &trainer->path[operation->layer];
    direct->ranks = trainer->comm->ranks;
    direct->rounds = 1;
    direct->round[0] = (struct mp_exchange_round){.send_rows = step->send_rows,
                                                  .receive_rows = step->receive_rows};
    return direct;
}
