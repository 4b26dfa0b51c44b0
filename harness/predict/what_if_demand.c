#include "harness/predict/what_if_demand.h"

#include <stdlib.h>
#include <string.h>

#include "harness/predict/what_if_bytes.h"
#include "harness/workload/run_trace.h"

int mp_demands_create(int iterations, int layers, int ranks, struct mp_demands *demands,
                      struct mp_error *error) {
    *demands = (struct mp_demands){.iterations = iterations, .layers = layers, .ranks = ranks};
    demands->demand = calloc(mp_demands_count(demands), sizeof *demands->demand);
    demands->moved = calloc((size_t)iterations, sizeof *demands->moved);
    if (demands->demand && demands->moved)
        return MP_OK;
    mp_demands_destroy(demands);
    return mp_fail(error, MP_ENOMEM, "no memory for what %d iterations ask of %d ranks", iterations,
                   ranks);
}

void mp_demands_destroy(struct mp_demands *demands) {
    free(demands->demand);
    free(demands->moved);
    *demands = (struct mp_demands){0};
}

int mp_demand_loads(const struct mp_demand_run *run, struct mp_trace_stream **stream,
                    struct mp_error *error) {
    return mp_trace_open_run(run->store, run->database, run->recorded->run_id, stream, error);
}

/* ---- what a plan asks for ---- */

/* A system at work on the run's loads. */
struct planning {
    struct mp_demands *demands;
    const struct mp_other_rates *rates; /* or NULL */
    struct mp_planner planner;
    struct mp_what_if_steps steps;
    struct mp_load *load;                /* [layers] */
    int64_t *computed, *sent, *received; /* [ranks] */
    bool *busy;                          /* [experts * ranks] places of plan.holder */
    struct mp_what_if_bytes bytes;
};

/* Experts with routes: each rank has a place in plan.holder for each that it holds. */
static void note_experts(struct planning *planning, const struct mp_plan *plan,
                         struct mp_demand demand[]) {
    bool *busy = planning->busy;
    memset(busy, 0, (size_t)plan->holder_begin[plan->experts] * sizeof *busy);
    int64_t parts = plan->part_begin[(int64_t)plan->topology.ranks * plan->experts];
    for (int64_t i = 0; i < parts; i++)
        for (int32_t at = plan->part[i].first; at < plan->part[i].first + plan->part[i].run; at++) {
            demand[plan->holder[at]].experts += !busy[at] && plan->part[i].count > 0;
            busy[at] |= plan->part[i].count > 0;
        }
}

static void note_rows(struct planning *planning, const struct mp_plan *plan, double padded,
                      struct mp_demand demand[]) {
    mp_plan_rank_routes(plan, planning->computed, planning->sent, planning->received);
    for (int r = 0; r < planning->demands->ranks; r++) {
        int64_t sent = planning->sent[r], received = planning->received[r];
        demand[r] =
            (struct mp_demand){.routes = (double)planning->computed[r] + padded,
                               .rows = (double)(sent > received ? sent : received) + padded};
    }
}

/* Every rank's part is as large. */
static void note_slices(const struct mp_plan_facts *facts, int ranks, struct mp_demand demand[]) {
    const int64_t *bytes = facts->bytes;
    for (int r = 0; r < ranks; r++) {
        demand[r].early = (double)bytes[MP_STAGE_BEFORE_GATE] / ranks;
        demand[r].bytes[0] = demand[r].early + (double)bytes[MP_STAGE_AFTER_GATE] / ranks;
        demand[r].bytes[1] =
            (double)(bytes[MP_STAGE_BACKWARD_PREFETCH] + bytes[MP_STAGE_BACKWARD_REDUCE]) / ranks;
    }
}

static void note_copies(struct planning *planning, const struct mp_plan *plan,
                        struct mp_demand demand[]) {
    struct mp_what_if_bytes *bytes = &planning->bytes;
    int ranks = planning->demands->ranks;
    if (plan->free_transfers)
        return;
    mp_what_if_bytes_clear(bytes);
    mp_what_if_bytes_add(bytes, plan, &plan->fetch, MP_STAGE_BEFORE_GATE, false);
    for (int r = 0; r < ranks; r++)
        demand[r].early = mp_what_if_bytes_of(bytes, r);
    mp_what_if_bytes_add(bytes, plan, &plan->fetch, MP_STAGE_AFTER_GATE, false);
    for (int r = 0; r < ranks; r++)
        demand[r].bytes[0] = mp_what_if_bytes_of(bytes, r);
    if (!plan->rematerialise)
        mp_what_if_bytes_clear(bytes); /* otherwise all of that once more */
    mp_what_if_bytes_add(bytes, plan, &plan->reduce, MP_STAGE_BACKWARD_REDUCE, true);
    mp_what_if_bytes_add(bytes, plan, &plan->share, MP_STAGE_BACKWARD_REDUCE, false);
    for (int r = 0; r < ranks; r++)
        demand[r].bytes[1] = mp_what_if_bytes_of(bytes, r);
}

static void note_steps(struct planning *planning, const struct mp_plan *plan,
                       struct mp_demand demand[]) {
    const struct mp_other_rates *rates = planning->rates;
    mp_what_if_steps_split(plan, &planning->steps);
    for (int r = 0; r < planning->demands->ranks; r++) {
        demand[r].pipelined = true;
        demand[r].calls = mp_what_if_steps_calls(&planning->steps, r);
        if (!rates)
            continue;
        double late = demand[r].bytes[0] - demand[r].early;
        double copies =
            mp_what_if_copies_pass(rates) && late > 0 ? mp_fitted_at(&rates->copies[0], late) : 0;
        for (int way = MP_FORWARD; way <= MP_BACKWARD; way++)
            mp_what_if_steps_time(&planning->steps, r, way, rates, demand[r].experts,
                                  way ? 0 : copies, &demand[r].stepped[way]);
    }
}

/* Of one layer; `demand` is [ranks]. */
static void note_demand(struct planning *planning, const struct mp_load *load,
                        struct mp_demand demand[], double *moved) {
    const struct mp_plan *plan = &planning->planner.plan[0];
    int ranks = planning->demands->ranks;
    struct mp_plan_facts facts;
    mp_plan_facts(plan, load, &facts);
    note_rows(planning, plan, (double)facts.rows_padded / ranks, demand);
    note_experts(planning, plan, demand);
    if (mp_optimizer_sliced(plan->optimizer))
        note_slices(&facts, ranks, demand);
    else
        note_copies(planning, plan, demand);
    *moved += (double)facts.bytes[MP_STAGE_AFTER_STEP] / ranks;
    if (plan->exchange == MP_EXCHANGE_PIPELINED)
        note_steps(planning, plan, demand);
}

/* ---- iterations ---- */

/* Homes of the next iteration, and the most that a rank sends or gets of them. */
static int plan_after_step(struct planning *planning, int64_t iteration, double *moved,
                           struct mp_error *error) {
    int code = mp_planner_after_step(&planning->planner, iteration, planning->load, error);
    double most = 0;
    if (code)
        return code;
    mp_what_if_bytes_clear(&planning->bytes);
    mp_what_if_bytes_add_moves(&planning->bytes, &planning->planner.moves);
    for (int r = 0; r < planning->demands->ranks; r++) {
        double bytes = mp_what_if_bytes_of(&planning->bytes, r);
        most = bytes > most ? bytes : most;
    }
    *moved += most;
    mp_planner_adopt_homes(&planning->planner);
    return MP_OK;
}

/* The blocks of one iteration are planned as they come; `index` of it among the recorded ones, or
 * -1. */
static int plan_layer(struct planning *planning, const struct mp_trace_block *block, int index,
                      struct mp_error *error) {
    struct mp_demands *demands = planning->demands;
    double unused = 0, *moved = index >= 0 ? &demands->moved[index] : &unused;
    int l = block->layer;
    int code = mp_planner_begin_layer(&planning->planner, block->iteration, l, error);
    if (!code)
        code = mp_planner_end_layer(&planning->planner, l, &block->load, error);
    if (code)
        return code;
    mp_load_copy(&planning->load[l], &block->load);
    if (index >= 0) {
        size_t first =
            ((size_t)index * (size_t)demands->layers + (size_t)l) * (size_t)demands->ranks;
        note_demand(planning, &block->load, &demands->demand[first], moved);
    }
    return l == demands->layers - 1 ? plan_after_step(planning, block->iteration, moved, error)
                                    : MP_OK;
}

static int plan_blocks(struct planning *planning, const struct mp_demand_run *run,
                       struct mp_trace_stream *stream, struct mp_error *error) {
    const struct mp_recorded *recorded = run->recorded;
    const struct mp_trace_block *block;
    int at = 0, met = 0, code;
    while (!(code = mp_trace_next(stream, &block, error)) && block) {
        while (at < recorded->iterations && recorded->number[at] < block->iteration)
            at++;
        bool is_steady = at < recorded->iterations && recorded->number[at] == block->iteration;
        code = plan_layer(planning, block, is_steady ? at : -1, error);
        if (code)
            return code;
        met += is_steady && block->layer == 0;
    }
    if (!code && met != recorded->iterations)
        code = mp_fail(error, MP_ENOTFOUND, "run %lld of %s lacks the loads of %d iterations",
                       (long long)recorded->run_id, run->database, recorded->iterations - met);
    return code;
}

static int create_planning(struct planning *planning, const struct mp_planner_config *config,
                           struct mp_error *error) {
    int ranks = planning->demands->ranks, layers = planning->demands->layers;
    int experts = config->setting->experts;
    planning->load = calloc((size_t)layers, sizeof *planning->load);
    planning->computed = calloc(3 * (size_t)ranks, sizeof *planning->computed);
    planning->busy = calloc((size_t)ranks * (size_t)experts, sizeof *planning->busy);
    if (!planning->load || !planning->computed || !planning->busy)
        return mp_fail(error, MP_ENOMEM, "no memory to plan for %d ranks and %d layers", ranks,
                       layers);
    planning->sent = planning->computed + ranks;
    planning->received = planning->sent + ranks;
    int code = mp_what_if_steps_create(ranks, experts, &planning->steps, error);
    if (!code)
        code = mp_what_if_bytes_create(ranks, experts, &planning->bytes, error);
    for (int l = 0; l < layers && !code; l++)
        code = mp_load_create(ranks, experts, &planning->load[l], error);
    return code ? code : mp_planner_create(config, &planning->planner, error);
}

static void destroy_planning(struct planning *planning) {
    for (int l = 0; planning->load && l < planning->demands->layers; l++)
        mp_load_destroy(&planning->load[l]);
    mp_planner_destroy(&planning->planner);
    mp_what_if_steps_destroy(&planning->steps);
    mp_what_if_bytes_destroy(&planning->bytes);
    free(planning->load);
    free(planning->computed);
    free(planning->busy);
}

int mp_demands_plan(struct mp_demands *demands, const struct mp_demand_run *run,
                    const struct mp_planner_config *config, const struct mp_other_rates *rates,
                    struct mp_error *error) {
    struct planning planning = {.demands = demands, .rates = rates};
    struct mp_trace_stream *stream = NULL;
    memset(demands->moved, 0, (size_t)demands->iterations * sizeof *demands->moved);
    int code = mp_demand_loads(run, &stream, error);
    if (!code)
        code = create_planning(&planning, config, error);
    if (!code)
        code = plan_blocks(&planning, run, stream, error);
    destroy_planning(&planning);
    mp_trace_stream_destroy(stream);
    return code;
}
