/* A layer's plan, and the rows that it has travel. */
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"

/* ---- planning ---- */

/* The rest of a plan is refused if loads don't say what the gate would choose; a run's do. */
static int check_gate(const struct mp_predictor *predictor, int layer, struct mp_error *error) {
    if (predictor->planner.plan->outgoing_limit < 0 || mp_costs_are_fitted(predictor->costs))
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "iteration %lld, layer %d: system %s limits how many tokens leave a node, "
                   "and loads do not say what the gate would choose instead; predictions need "
                   "that option off (fastermoe: topology-gate=no)",
                   (long long)predictor->iteration, layer, predictor->planner.system->name);
}

int mp_predictor_plan_before(struct mp_predictor *predictor, int layer, struct mp_error *error) {
    int code = mp_planner_begin_layer(&predictor->planner, predictor->iteration, layer, error);
    return code ? code : check_gate(predictor, layer, error);
}

static void add_late(struct mp_predictor *predictor, int expert, int rank) {
    predictor->late[(long)expert * predictor->planner.plan->during.words + rank / 64] |=
        UINT64_C(1) << (rank & 63);
}

/* Copies of the plan that are fetched after the gate, and the owners of those none of whose routes
 * travel (reference/model/routing.h). */
static void mark_late(struct mp_predictor *predictor) {
    const struct mp_plan *plan = predictor->planner.plan;
    int words = plan->during.words;
    if (predictor->has_late)
        memset(predictor->late, 0, (size_t)plan->experts * (size_t)words * sizeof(uint64_t));
    predictor->has_late = false;
    for (int i = 0, known = -1; i < plan->fetch.count; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        if (transfer->stage != MP_STAGE_AFTER_GATE)
            continue;
        predictor->has_late = true;
        add_late(predictor, transfer->expert, transfer->to);
        if (transfer->expert != known && mp_plan_stays(plan, transfer->expert))
            add_late(predictor, transfer->expert, transfer->from);
        known = transfer->expert;
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

/* Where a plan's rows are counted. */
struct spread {
    const struct mp_plan *plan;
    struct mp_predicted_layer *layer;
    int64_t *place_rows; /* at each place of plan.holder */
};

/* Rows of a source by destination, its own included, and added up by place; an mp_traffic_rows. */
static int spread_source(void *context, int source, uint32_t row[], int32_t receiver[]) {
    const struct spread *spread = context;
    const struct mp_plan *plan = spread->plan;
    const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
    const struct mp_dispatch_part *part = plan->part + begin[0];
    const struct mp_dispatch_part *end = plan->part + begin[plan->experts];
    const int32_t *holder = plan->holder;
    int64_t *place_rows = spread->place_rows;
    uint32_t padding = (uint32_t)plan->padding;
    int receivers = 0;
    for (; part < end; part++) {
        uint32_t rows = padding > 0 ? padding : part->count;
        int64_t at = part->first, past = at + part->run;
        do {
            int rank = holder[at];
            if (row[rank] == 0)
                receiver[receivers++] = rank;
            row[rank] += rows;
            place_rows[at] += rows;
        } while (__builtin_expect(++at < past, 0)); /* most parts are a run of 1 */
    }
    spread->layer->own_rows[source] = row[source];
    return receivers;
}

/* The rows that travel, into the layer's traffic unless they do so in steps. */
static void fill_traffic(struct mp_predictor *predictor, struct mp_predicted_layer *layer) {
    struct spread spread = {predictor->planner.plan, layer, predictor->place_rows};
    uint32_t *row = predictor->row;
    if (!layer->pipelined) {
        mp_traffic_fill(layer->traffic, spread_source, &spread,
                        mp_costs_row_bytes(predictor->costs), layer->sent_rows);
        return;
    }
    memset(row, 0, (size_t)predictor->ranks * sizeof *row);
    for (int source = 0; source < predictor->ranks; source++) {
        int receivers = spread_source(&spread, source, row, predictor->receiver);
        layer->sent_rows[source] = 0;
        for (int i = 0; i < receivers; i++) {
            layer->sent_rows[source] += row[predictor->receiver[i]];
            row[predictor->receiver[i]] = 0;
        }
    }
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

/* Room for rows at every place of plan.holder, all zero. */
static int clear_places(struct mp_predictor *predictor, struct mp_error *error) {
    int64_t places = predictor->planner.plan->holder_begin[predictor->planner.plan->experts];
    if (places > predictor->places_limit) {
        int64_t limit = 2 * places;
        int64_t *rows = malloc((size_t)limit * sizeof *rows);
        if (!rows)
            return mp_fail(error, MP_ENOMEM, "no memory for rows of %lld holders",
                           (long long)places);
        free(predictor->place_rows);
        predictor->place_rows = rows;
        predictor->places_limit = limit;
    }
    memset(predictor->place_rows, 0, (size_t)places * sizeof(int64_t));
    return MP_OK;
}

/* Work of every rank in its experts, and what it holds beside its homes. */
static void count_work(struct mp_predictor *predictor, struct mp_predicted_layer *layer) {
    const struct mp_plan *plan = predictor->planner.plan;
    size_t size = (size_t)predictor->ranks * sizeof(double);
    memset(layer->expert[MP_FORWARD], 0, size);
    memset(layer->expert[MP_BACKWARD], 0, size);
    memset(layer->copies, 0, size);
    memset(layer->rows, 0, (size_t)predictor->ranks * sizeof *layer->rows);
    for (int32_t at = 0; at < plan->holder_begin[plan->experts]; at++) {
        int rank = plan->holder[at];
        int64_t rows = predictor->place_rows[at];
        layer->copies[rank]++;
        if (rows == 0)
            continue;
        layer->rows[rank] += rows;
        for (int direction = MP_FORWARD; direction <= MP_BACKWARD; direction++)
            layer->expert[direction][rank] += mp_costs_expert(predictor->costs, rows, direction);
    }
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
    predictor->sink.facts(predictor->sink.context, predictor->iteration, layer, plan, &facts);
}

int mp_predictor_dispatch(struct mp_predictor *predictor, int number, struct mp_error *error) {
    struct mp_predicted_layer *layer = &predictor->layer[number];
    const struct mp_plan *plan = predictor->planner.plan;
    double bytes = mp_costs_row_bytes(predictor->costs), crossing = 0;
    layer->pipelined = plan->exchange == MP_EXCHANGE_PIPELINED;
    int code = clear_places(predictor, error);
    if (code)
        return code;
    fill_traffic(predictor, layer);
    count_work(predictor, layer);
    if (!layer->pipelined)
        mp_network_alone(predictor->network, layer->traffic, layer->alone);
    for (int r = 0; r < predictor->ranks; r++) {
        layer->permute[r] = mp_costs_permute(predictor->costs, layer->sent_rows[r]);
        layer->sent[r] = (double)(layer->sent_rows[r] - layer->own_rows[r]) * bytes;
        layer->received[r] = (double)(layer->rows[r] - layer->own_rows[r]) * bytes;
        crossing += layer->sent[r];
    }
    predictor->prediction->exchanged_bytes += 4 * crossing;
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
    struct mp_predicted_layer *layer = &predictor->layer[number];
    bool flat = !layer->pipelined;
    if ((predictor->keeps_traffic && flat) || predictor->planner.planned == number)
        return MP_OK;
    int code = mp_planner_again(&predictor->planner, predictor->iteration, number,
                                &predictor->load[number], error);
    if (code)
        return code;
    mark_late(predictor);
    if (flat)
        fill_traffic(predictor, layer);
    return MP_OK;
}
