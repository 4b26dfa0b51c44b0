#include "harness/predict/rows.h"

#include <string.h>

enum { KEPT_BYTES = 1 << 30 /* of rows that are kept until backward, at most */ };

/* ---- tables ---- */

/* Where the exchange has rows of tokens, as the first plan says. */
static void create_distinct(struct mp_arena *memory, struct mp_predicted_rows *rows) {
    int ranks = rows->loads->ranks;
    const struct mp_plan *plan = rows->planner->plan;
    if (!mp_exchange_of(plan->exchange)->deduplicates)
        return;
    MP_TAKE(memory, rows->distinct, ranks * mp_levels_most_groups(ranks) * plan->degree);
    mp_distinct_model_create(memory, ranks, rows->loads->experts, rows->costs->top_k,
                             &rows->distinct_model);
}

int mp_predicted_rows_create(struct mp_arena *memory, bool drops, struct mp_predicted_rows *rows,
                             struct mp_error *error) {
    int ranks = rows->loads->ranks, layers = rows->loads->layers;
    rows->kept_limit = KEPT_BYTES;
    MP_TAKE(memory, rows->layer, layers);
    for (int l = 0; rows->layer && l < layers; l++) {
        struct mp_layer_rows *layer = &rows->layer[l];
        MP_TAKE_EACH(memory, ranks, layer->sent, layer->received, layer->permute, layer->sent_rows,
                     layer->rows, layer->transit);
    }
    MP_TAKE_EACH(memory, ranks, rows->computed, rows->sent, rows->received);
    if (drops)
        MP_TAKE(memory, rows->dropped,
                (size_t)layers * (size_t)ranks * (size_t)rows->loads->experts);
    create_distinct(memory, rows);
    return mp_arena_check(memory, error);
}

void mp_predicted_rows_destroy(struct mp_predicted_rows *rows) {
    for (int l = 0; rows->layer && l < rows->loads->layers; l++)
        mp_steps_destroy(&rows->layer[l].kept);
    mp_steps_destroy(&rows->steps);
    mp_steps_memory_destroy(&rows->steps_memory);
}

void mp_predicted_rows_begin(struct mp_predicted_rows *rows) {
    const struct mp_gated_loads *loads = rows->loads;
    rows->imbalance = rows->exchanged_bytes = 0;
    rows->routes = rows->lost = rows->copies = 0;
    if (rows->dropped)
        memset(rows->dropped, 0,
               (size_t)loads->layers * (size_t)loads->ranks * (size_t)loads->experts *
                   sizeof *rows->dropped);
}

/* ---- of a plan ---- */

static int fill_steps(struct mp_predicted_rows *rows, const struct mp_late_copies *late,
                      struct mp_error *error) {
    const struct mp_plan *plan = rows->planner->plan;
    bool keeps = late->any && mp_exchange_of(plan->exchange)->keeps_late_rows;
    return mp_steps_fill(&rows->steps, &rows->steps_memory, rows->network, rows->costs, plan,
                         keeps ? late->rank : NULL, rows->by_expert, rows->distinct, error);
}

/* Tokens in groups and on ranks, for an exchange whose rows they are. */
static void find_distinct(struct mp_predicted_rows *rows, int micro_batch, int layer) {
    const struct mp_plan *plan = rows->planner->plan;
    const struct mp_gated_loads *loads = rows->loads;
    const struct mp_load *given = &loads->given[micro_batch * loads->layers + layer];
    /* Perhaps a copy, whose tokens are those given. */
    struct mp_load load = *mp_gated_load(loads, micro_batch, layer);
    load.distinct = given->distinct;
    load.distinct_counts = given->distinct_counts;
    if (mp_exchange_of(plan->exchange)->deduplicates)
        mp_distinct_tokens(&rows->distinct_model, plan, &load, rows->distinct);
}

/* The layer's rows are those that have just been filled, which the layer keeps until
 * backward if there is room; otherwise backward plans it again, which gives the same plan. */
static void take_steps(struct mp_predicted_rows *rows, struct mp_layer_rows *layer) {
    const struct mp_steps filled = rows->steps;
    layer->steps = &rows->steps;
    if (rows->kept_bytes - layer->kept.bytes + filled.bytes > rows->kept_limit)
        return;
    rows->kept_bytes += filled.bytes - layer->kept.bytes;
    rows->steps = layer->kept;
    layer->kept = filled;
    layer->steps = &layer->kept;
}

/* Routes of a source that are computed, by destination; of padded plans. */
static void count_routes(const struct mp_plan *plan, int ranks, int64_t computed[]) {
    memset(computed, 0, (size_t)ranks * sizeof *computed);
    for (int64_t i = 0; i < plan->part_begin[(int64_t)ranks * plan->experts]; i++) {
        const struct mp_dispatch_part *part = &plan->part[i];
        for (int32_t at = part->first; at < part->first + part->run; at++)
            computed[plan->holder[at]] += part->count;
    }
}

/* Largest over mean of computed routes, and how many there are. */
static void count_balance(struct mp_predicted_rows *rows, const struct mp_layer_rows *layer,
                          const struct mp_load *load) {
    int64_t most = 0, sum = 0, all = mp_load_total(load);
    const int64_t *routes = layer->rows;
    if (rows->planner->plan->padding > 0) {
        count_routes(rows->planner->plan, load->ranks, rows->computed);
        routes = rows->computed;
    }
    for (int r = 0; r < load->ranks; r++) {
        most = routes[r] > most ? routes[r] : most;
        sum += routes[r];
    }
    rows->imbalance += sum > 0 ? (double)most * load->ranks / (double)sum : 1;
    rows->routes += all;
    rows->lost += all - sum;
}

/* Routes that no part covers, added up over micro-batches. */
static void count_dropped(const struct mp_plan *plan, const struct mp_load *load,
                          uint32_t dropped[]) {
    for (int64_t pair = 0; pair < (int64_t)load->ranks * load->experts; pair++) {
        uint32_t kept = 0;
        for (int64_t i = plan->part_begin[pair]; i < plan->part_begin[pair + 1]; i++)
            kept += plan->part[i].count * (uint32_t)plan->part[i].run;
        dropped[pair] += load->count[pair] - kept;
    }
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
static void count_hops(struct mp_predicted_rows *rows, struct mp_layer_rows *layer) {
    int ranks = rows->loads->ranks;
    memset(layer->sent, 0, (size_t)ranks * sizeof *layer->sent);
    memset(layer->received, 0, (size_t)ranks * sizeof *layer->received);
    const struct mp_steps *steps = layer->steps;
    int each = steps->steps * steps->rounds, trips = steps->trips;
    for (int t = 0; t < trips * each; t++) {
        /* Rows alone travel twice; and nothing back from backward where there is none. */
        bool serves = rows->planner->policy.forward_only, alone = t / each == MP_TRIP_ALONE;
        double share = trips == 1                           ? 1
                       : serves && t / each == MP_TRIP_BACK ? 0
                       : serves || alone                    ? 0.5
                                                            : 0.25;
        mp_traffic_totals(steps->traffic[t], rows->sent, rows->received);
        for (int r = 0; r < ranks; r++) {
            layer->sent[r] += share * rows->sent[r];
            layer->received[r] += share * rows->received[r];
        }
    }
    count_transit(steps, ranks, rows->sent, rows->received, layer->transit);
}

/* What the rows of a layer come to, rank by rank. */
static void count_rows(struct mp_predicted_rows *rows, struct mp_layer_rows *layer) {
    const struct mp_steps *steps = layer->steps;
    const struct mp_plan *plan = rows->planner->plan;
    double bytes = rows->costs->sizes.row, crossing = 0;
    size_t ranks = (size_t)rows->loads->ranks;
    memcpy(layer->sent_rows, steps->sent, ranks * sizeof *steps->sent);
    memcpy(layer->rows, steps->rows, ranks * sizeof *steps->rows);
    for (size_t cell = ranks; cell < ((size_t)steps->steps + 1) * ranks; cell++)
        layer->rows[cell % ranks] += steps->rows[cell];
    for (size_t r = 0; r < ranks; r++) {
        layer->permute[r] = mp_costs_permute(rows->costs, steps->sent[r]);
        layer->sent[r] = (double)(steps->sent[r] - steps->own[r]) * bytes;
        layer->received[r] = (double)(layer->rows[r] - steps->own[r]) * bytes;
    }
    if (steps->hops > 1)
        count_hops(rows, layer);
    for (size_t r = 0; r < ranks; r++)
        crossing += layer->sent[r];
    rows->exchanged_bytes += (rows->planner->policy.forward_only ? 2 : 4) * crossing;
    layer->one_hot = plan->policy->one_hot ? plan->padding * plan->experts : 0;
}

int mp_predicted_rows_fill(struct mp_predicted_rows *rows, const struct mp_late_copies *late,
                           int micro_batch, int number, struct mp_error *error) {
    struct mp_layer_rows *layer = &rows->layer[number];
    const struct mp_plan *plan = rows->planner->plan;
    const struct mp_load *load = mp_gated_load(rows->loads, micro_batch, number);
    find_distinct(rows, micro_batch, number);
    MP_TRY(fill_steps(rows, late, error));
    take_steps(rows, layer);
    count_rows(rows, layer);
    count_balance(rows, layer, load);
    if (rows->dropped)
        count_dropped(plan, load, rows->dropped + (int64_t)number * load->ranks * load->experts);
    if (micro_batch + 1 == rows->loads->micro_batches)
        rows->copies += plan->holder_begin[plan->experts] - plan->experts;
    return mp_network_check(rows->network, error);
}

int mp_predicted_rows_restore(struct mp_predicted_rows *rows, struct mp_late_copies *late,
                              int micro_batch, int layer, int64_t iteration,
                              struct mp_error *error) {
    if (rows->layer[layer].steps != &rows->steps || rows->planner->planned == layer)
        return MP_OK;
    MP_TRY(mp_planner_again(rows->planner, iteration, layer,
                            mp_gated_load(rows->loads, micro_batch, layer), error));
    mp_late_copies_mark(late, rows->planner->plan);
    find_distinct(rows, micro_batch, layer);
    return fill_steps(rows, late, error);
}
