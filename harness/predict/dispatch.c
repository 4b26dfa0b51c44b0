/* A layer's plan, and the rows that it has travel. */
#include <string.h>

#include "harness/predict/engine.h"

/* ---- planning ---- */

int mp_predictor_plan_before(struct mp_predictor *predictor, int layer, struct mp_error *error) {
    int code = mp_planner_begin_layer(&predictor->planner, predictor->iteration, layer, error);
    return code ? code : mp_predictor_limit_gate(predictor, layer, error);
}

static void mark_late(struct mp_predictor *predictor) {
    const struct mp_plan *plan = predictor->planner.plan;
    int64_t words = plan->during.words;
    if (predictor->has_late)
        memset(predictor->late, 0, (size_t)plan->experts * (size_t)words * sizeof(uint64_t));
    predictor->has_late = false;
    for (struct mp_late_copy copy = {.expert = -1}; mp_plan_next_late(plan, &copy);) {
        predictor->has_late = true;
        predictor->late[copy.expert * words + copy.rank / 64] |= UINT64_C(1) << (copy.rank & 63);
    }
}

bool mp_predictor_is_late(const struct mp_predictor *predictor, int expert, int rank) {
    const uint64_t *row = predictor->late + (long)expert * predictor->planner.plan->during.words;
    return predictor->has_late && (row[rank / 64] >> (rank & 63) & 1);
}

int mp_predictor_plan_after(struct mp_predictor *predictor, int layer, struct mp_error *error) {
    int code = mp_planner_end_layer(&predictor->planner, layer, &predictor->load[layer], error);
    if (!code)
        mark_late(predictor);
    return code;
}

/* ---- rows ---- */

static int fill_steps(struct mp_predictor *predictor, struct mp_error *error) {
    const struct mp_plan *plan = predictor->planner.plan;
    bool late = predictor->has_late && mp_exchange_of(plan->exchange)->keeps_late_rows;
    return mp_steps_fill(&predictor->steps, &predictor->steps_memory, predictor->network,
                         predictor->costs, plan, late ? predictor->late : NULL,
                         predictor->options.exchange == MP_ROWS_BY_EXPERT, predictor->distinct,
                         error);
}

/* Tokens in groups and on ranks, for an exchange whose rows they are. */
static void find_distinct(struct mp_predictor *predictor, int layer) {
    const struct mp_plan *plan = predictor->planner.plan;
    const struct mp_load *given =
        &predictor->given[predictor->micro_batch * predictor->layers + layer];
    struct mp_load load = predictor->load[layer]; /* perhaps a copy, whose tokens are those given */
    load.distinct = given->distinct;
    load.distinct_counts = given->distinct_counts;
    if (mp_exchange_of(plan->exchange)->deduplicates)
        mp_distinct_tokens(&predictor->distinct_model, plan, &load, predictor->distinct);
}

/* The layer's rows are those that have just been filled, which the layer keeps until
 * backward if there is room; otherwise backward plans it again, which gives the same plan. */
static void take_steps(struct mp_predictor *predictor, struct mp_predicted_layer *layer) {
    const struct mp_steps filled = predictor->steps;
    layer->steps = &predictor->steps;
    if (predictor->kept_bytes - layer->kept.bytes + filled.bytes > predictor->kept_limit)
        return;
    predictor->kept_bytes += filled.bytes - layer->kept.bytes;
    predictor->steps = layer->kept;
    layer->kept = filled;
    layer->steps = &layer->kept;
}

/* Routes of a source that are computed, by destination; of padded plans. */
static void count_routes(struct mp_predictor *predictor) {
    const struct mp_plan *plan = predictor->planner.plan;
    for (int64_t i = 0; i < plan->part_begin[(int64_t)predictor->ranks * plan->experts]; i++) {
        const struct mp_dispatch_part *part = &plan->part[i];
        for (int32_t at = part->first; at < part->first + part->run; at++)
            predictor->routes[plan->holder[at]] += part->count;
    }
}

/* Largest over mean of computed routes, and how many there are. */
static void count_balance(struct mp_predictor *predictor, const struct mp_predicted_layer *layer,
                          const struct mp_load *load) {
    int64_t most = 0, sum = 0, all = 0;
    const int64_t *routes = layer->rows;
    if (predictor->planner.plan->padding > 0) {
        memset(predictor->routes, 0, (size_t)predictor->ranks * sizeof *predictor->routes);
        count_routes(predictor);
        routes = predictor->routes;
    }
    for (int r = 0; r < predictor->ranks; r++) {
        most = routes[r] > most ? routes[r] : most;
        sum += routes[r];
    }
    for (int64_t i = 0; i < (int64_t)load->ranks * load->experts; i++)
        all += load->count[i];
    predictor->imbalance += sum > 0 ? (double)most * predictor->ranks / (double)sum : 1;
    predictor->prediction->routes += all;
    predictor->prediction->dropped += all - sum;
}

/* Routes that no part covers, added up over micro-batches. */
static void count_dropped(const struct mp_predictor *predictor, int layer) {
    const struct mp_plan *plan = predictor->planner.plan;
    int64_t pairs = (int64_t)predictor->ranks * plan->experts;
    uint32_t *dropped = predictor->dropped + layer * pairs;
    for (int64_t pair = 0; pair < pairs; pair++) {
        uint32_t kept = 0;
        for (int64_t i = plan->part_begin[pair]; i < plan->part_begin[pair + 1]; i++)
            kept += plan->part[i].count * (uint32_t)plan->part[i].run;
        dropped[pair] += predictor->load[layer].count[pair] - kept;
    }
}

static void record_facts(const struct mp_predictor *predictor, int layer) {
    const struct mp_plan *plan = predictor->planner.plan;
    struct mp_plan_facts facts;
    if (!predictor->sink.facts)
        return;
    mp_plan_facts(plan, &predictor->load[layer], &facts);
    predictor->sink.facts(predictor->sink.context, predictor->called, layer, plan, &facts);
}

/* What a rank has in transit at once: in every step the most that it puts in order. */
static void count_transit(const struct mp_steps *steps, int ranks, double copied[],
                          double step_most[], double transit[]) {
    memset(transit, 0, (size_t)ranks * sizeof *transit);
    for (int step = 0; step < steps->steps; step++) {
        memset(step_most, 0, (size_t)ranks * sizeof *step_most);
        for (int i = 0; i < steps->trips * steps->rounds; i++) {
            int trip = i / steps->rounds, round = i % steps->rounds;
            mp_traffic_copies(steps->traffic[(trip * steps->steps + step) * steps->rounds + round],
                              copied);
            for (int r = 0; r < ranks; r++)
                step_most[r] = copied[r] > step_most[r] ? copied[r] : step_most[r];
        }
        for (int r = 0; r < ranks; r++)
            transit[r] += step_most[r];
    }
}

/* Bytes across ranks' borders where rows are passed on, of all trips their mean. */
static void count_hops(const struct mp_predictor *predictor, struct mp_predicted_layer *layer) {
    double *sent = predictor->bytes, *received = predictor->seconds;
    memset(layer->sent, 0, (size_t)predictor->ranks * sizeof *layer->sent);
    memset(layer->received, 0, (size_t)predictor->ranks * sizeof *layer->received);
    const struct mp_steps *steps = layer->steps;
    int each = steps->steps * steps->rounds, trips = steps->trips;
    for (int t = 0; t < trips * each; t++) {
        /* Rows alone travel twice; and nothing back from backward where there is none. */
        bool serves = predictor->planner.policy.forward_only, alone = t / each == MP_TRIP_ALONE;
        double share = trips == 1                           ? 1
                       : serves && t / each == MP_TRIP_BACK ? 0
                       : serves || alone                    ? 0.5
                                                            : 0.25;
        mp_traffic_totals(steps->traffic[t], sent, received);
        for (int r = 0; r < predictor->ranks; r++) {
            layer->sent[r] += share * sent[r];
            layer->received[r] += share * received[r];
        }
    }
    count_transit(steps, predictor->ranks, sent, received, layer->transit);
}

/* What the rows of a layer come to, rank by rank. */
static void count_rows(struct mp_predictor *predictor, struct mp_predicted_layer *layer) {
    const struct mp_steps *steps = layer->steps;
    const struct mp_plan *plan = predictor->planner.plan;
    double bytes = mp_costs_row_bytes(predictor->costs), crossing = 0;
    size_t ranks = (size_t)predictor->ranks;
    memcpy(layer->sent_rows, steps->sent, ranks * sizeof *steps->sent);
    memcpy(layer->rows, steps->rows, ranks * sizeof *steps->rows);
    for (size_t cell = ranks, r = 0; cell < ((size_t)steps->steps + 1) * ranks; cell++) {
        layer->rows[r] += steps->rows[cell];
        r = r + 1 < ranks ? r + 1 : 0;
    }
    for (size_t r = 0; r < ranks; r++) {
        layer->permute[r] = mp_costs_permute(predictor->costs, steps->sent[r]);
        layer->sent[r] = (double)(steps->sent[r] - steps->own[r]) * bytes;
        layer->received[r] = (double)(layer->rows[r] - steps->own[r]) * bytes;
    }
    if (steps->hops > 1)
        count_hops(predictor, layer);
    for (size_t r = 0; r < ranks; r++)
        crossing += layer->sent[r];
    predictor->prediction->exchanged_bytes +=
        (predictor->planner.policy.forward_only ? 2 : 4) * crossing;
    layer->one_hot = plan->policy->one_hot ? plan->padding * plan->experts : 0;
}

int mp_predictor_dispatch(struct mp_predictor *predictor, int number, struct mp_error *error) {
    struct mp_predicted_layer *layer = &predictor->layer[number];
    const struct mp_plan *plan = predictor->planner.plan;
    find_distinct(predictor, number);
    int code = fill_steps(predictor, error);
    if (code)
        return code;
    take_steps(predictor, layer);
    count_rows(predictor, layer);
    mp_predictor_count_holders(&plan->during, layer->copies);
    count_balance(predictor, layer, &predictor->load[number]);
    if (predictor->dropped)
        count_dropped(predictor, number);
    if (predictor->micro_batch + 1 == predictor->options.micro_batches) {
        predictor->prediction->copies += plan->holder_begin[plan->experts] - plan->experts;
        record_facts(predictor, number);
    }
    return mp_network_check(predictor->network, error);
}

int mp_predictor_restore(struct mp_predictor *predictor, int number, struct mp_error *error) {
    if (predictor->layer[number].steps != &predictor->steps || predictor->planner.planned == number)
        return MP_OK;
    int code = mp_planner_again(&predictor->planner, predictor->iteration, number,
                                &predictor->load[number], error);
    if (code)
        return code;
    mark_late(predictor);
    find_distinct(predictor, number);
    return fill_steps(predictor, error);
}
