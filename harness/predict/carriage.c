/* What a plan moves beside rows, as bytes between ranks and seconds of their streams.
 *
 * Experts travel along the hops of reference/schedule/hops.h; sums of gradients travel them
 * backwards. The time is that of the busiest port; pieces are taken to be small, so that filling a
 * chain costs its messages' latency alone.  With `gather: broadcasts` an expert that all ranks get
 * goes the ring of NCCL's broadcast, in the order of ranks; that of a machine may pass its nodes in
 * another. */
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"

int mp_carriage_create(int ranks, bool spans, struct mp_carriage *carriage,
                       struct mp_error *error) {
    size_t width = (size_t)ranks;
    double *memory = calloc(width * (spans ? 3 : 2), sizeof *memory);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory for the transfers of %d ranks", ranks);
    *carriage = (struct mp_carriage){
        .seconds = memory, .alone = memory + width, .received = spans ? memory + 2 * width : NULL};
    return MP_OK;
}

void mp_carriage_destroy(struct mp_carriage *carriage) {
    free(carriage->seconds);
    *carriage = (struct mp_carriage){0};
}

/* ---- broadcasts ---- */

/* Notes that an expert goes to a rank. */
static void want(struct mp_predictor *predictor, int expert, int rank) {
    int words = predictor->planner.plan->during.words;
    predictor->wanted[(long)expert * words + rank / 64] |= UINT64_C(1) << (rank & 63);
    if (predictor->listed[expert])
        return;
    predictor->listed[expert] = true;
    predictor->touched[predictor->touched_count++] = expert;
}

/* Receivers of an expert, ascending, and no wants any more. */
static int take_receivers(struct mp_predictor *predictor, int expert, int32_t receiver[]) {
    int words = predictor->planner.plan->during.words, count = 0;
    uint64_t *row = predictor->wanted + (long)expert * words;
    for (int word = 0; word < words; word++) {
        for (uint64_t bits = row[word]; bits; bits &= bits - 1)
            receiver[count++] = word * 64 + __builtin_ctzll(bits);
        row[word] = 0;
    }
    predictor->listed[expert] = false;
    return count;
}

/* NCCL's own broadcast of an expert to all ranks, where the job wants it. */
static bool by_ring(const struct mp_predictor *predictor, int receivers) {
    const struct mp_job *job = &predictor->job;
    return job->gather == MP_GATHER_BROADCASTS && job->transport != MP_TRANSPORT_MPI &&
           receivers + 1 == predictor->ranks;
}

static void broadcast(struct mp_predictor *predictor, int expert, int from, double bytes) {
    const struct mp_topology *topology = &predictor->planner.setting.topology;
    struct mp_traffic *traffic = predictor->traffic;
    struct mp_hop *hop = predictor->hop;
    int count = take_receivers(predictor, expert, predictor->receiver);
    if (by_ring(predictor, count))
        mp_hops_ring(predictor->ranks, from, hop);
    else
        mp_hops(topology, expert, from, predictor->receiver, count, hop);
    for (int i = 0; i < count; i++)
        mp_traffic_add(traffic, hop[i].from, hop[i].to, bytes);
}

static void broadcast_all(struct mp_predictor *predictor, double bytes) {
    const int32_t *owner = predictor->planner.plan->during.owner;
    for (int i = 0; i < predictor->touched_count; i++)
        broadcast(predictor, predictor->touched[i], owner[predictor->touched[i]], bytes);
    predictor->touched_count = 0;
}

/* ---- durations ---- */

/* The traffic that has been put together, all ranks starting at once. */
static void measure(struct mp_predictor *predictor, bool back, struct mp_carriage *carriage) {
    carriage->any = true;
    mp_network_exchange(predictor->network, predictor->traffic, back, predictor->zero,
                        carriage->seconds);
    mp_network_alone(predictor->network, predictor->traffic, carriage->alone);
    if (carriage->received)
        mp_traffic_totals(predictor->traffic, back ? carriage->received : NULL,
                          back ? NULL : carriage->received);
}

/* ---- slices ---- */

void mp_predictor_count_holders(const struct mp_placement *placement, double holds[]) {
    memset(holds, 0, (size_t)placement->ranks * sizeof *holds);
    for (int expert = 0; expert < placement->experts; expert++) {
        const uint64_t *row = placement->holder + (long)expert * placement->words;
        for (int word = 0; word < placement->words; word++)
            for (uint64_t bits = row[word]; bits; bits &= bits - 1)
                holds[word * 64 + __builtin_ctzll(bits)]++;
    }
}

/* Every holder sends every other one its slice.  Returns all bytes. */
static double add_replica_slices(struct mp_predictor *predictor,
                                 const struct mp_placement *placement, double expert_bytes) {
    double sum = 0;
    for (int expert = 0; expert < placement->experts; expert++) {
        double slice = expert_bytes / mp_placement_copies(placement, expert);
        for (int from = mp_placement_next(placement, expert, 0); from >= 0;
             from = mp_placement_next(placement, expert, from + 1))
            for (int to = mp_placement_next(placement, expert, 0); to >= 0;
                 to = mp_placement_next(placement, expert, to + 1)) {
                if (from == to)
                    continue;
                mp_traffic_add(predictor->traffic, from, to, slice);
                sum += slice;
            }
    }
    return sum;
}

/* Every keeper sends every holder its slice of each expert there.  Returns all bytes. */
static double add_slices(struct mp_predictor *predictor, const struct mp_placement *placement,
                         double expert_bytes) {
    if (mp_optimizer_of_replicas(predictor->planner.policy.optimizer))
        return add_replica_slices(predictor, placement, expert_bytes);
    double slice = expert_bytes / predictor->ranks, sum = 0;
    mp_predictor_count_holders(placement, predictor->holds);
    for (int from = 0; from < predictor->ranks; from++)
        for (int to = 0; to < predictor->ranks; to++) {
            double bytes = from == to ? 0 : predictor->holds[to] * slice;
            sum += bytes;
            if (bytes > 0)
                mp_traffic_add(predictor->traffic, from, to, bytes);
        }
    return sum;
}

/* Every keeper gets its slice of each sum from one of the holders, which replicas are themselves.
 * Returns all bytes. */
static double add_slices_of_sums(struct mp_predictor *predictor, double expert_bytes) {
    const struct mp_plan *plan = predictor->planner.plan;
    double slice = expert_bytes / predictor->ranks, sum = 0;
    if (mp_optimizer_of_replicas(plan->policy->optimizer))
        return 0;
    for (int expert = 0; expert < plan->experts; expert++)
        for (int rank = 0; rank < predictor->ranks; rank++) {
            int source = mp_plan_slice_source(plan, expert, rank);
            if (source == rank)
                continue;
            mp_traffic_add(predictor->traffic, source, rank, slice);
            sum += slice;
        }
    return sum;
}

/* ---- parameters ---- */

/* Fetches of a stage from who is not the expert's owner: the first one of its expert and source
 * takes the others with it. */
static void pass_on(struct mp_predictor *predictor, int first, double bytes) {
    const struct mp_transfers *list = &predictor->planner.plan->fetch;
    const struct mp_transfer *this = &list->item[first];
    for (int i = 0; i < list->count; i++) {
        const struct mp_transfer *other = &list->item[i];
        if (other->stage != this->stage || other->expert != this->expert ||
            other->from != this->from)
            continue;
        if (i < first)
            return;
        want(predictor, other->expert, other->to);
    }
    broadcast(predictor, this->expert, this->from, bytes);
    predictor->touched_count--;
}

void mp_predictor_carry_fetch(struct mp_predictor *predictor, enum mp_stage stage,
                              struct mp_carriage *carriage) {
    const struct mp_plan *plan = predictor->planner.plan;
    double bytes = mp_costs_expert_bytes(predictor->costs), sum = 0;
    bool before = stage == MP_STAGE_BEFORE_GATE;
    carriage->any = false;
    if (before && predictor->micro_batch > 0 && !plan->policy->rematerialise)
        return; /* they are still there */
    if (plan->fetch.count == 0 && !(before && mp_policy_gathers(plan->policy)))
        return;
    mp_traffic_clear(predictor->traffic);
    if (before && mp_policy_gathers(plan->policy))
        sum += add_slices(predictor, &plan->during, bytes);
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        if (transfer->stage != stage)
            continue;
        if (transfer->from == plan->during.owner[transfer->expert])
            want(predictor, transfer->expert, transfer->to);
        sum += bytes;
    }
    broadcast_all(predictor, bytes);
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage &&
            plan->fetch.item[i].from != plan->during.owner[plan->fetch.item[i].expert])
            pass_on(predictor, i, bytes);
    predictor->prediction->bytes[stage] += sum;
    if (plan->policy->rematerialise && !plan->policy->forward_only)
        predictor->prediction->bytes[MP_STAGE_BACKWARD_PREFETCH] += sum;
    if (sum > 0 && !plan->policy->free_transfers)
        measure(predictor, false, carriage);
}

/* What is freed after forward comes again for backward: both stages together. */
static void carry_prefetch(struct mp_predictor *predictor, struct mp_predicted_layer *layer) {
    const struct mp_carriage *part[] = {&predictor->fetch, &predictor->late_fetch};
    struct mp_carriage *all = &layer->prefetch;
    all->any = predictor->planner.policy.rematerialise && (part[0]->any || part[1]->any);
    for (int r = 0; all->any && r < predictor->ranks; r++) {
        all->seconds[r] = all->alone[r] = 0;
        if (all->received)
            all->received[r] = 0;
        for (int i = 0; i < 2; i++) {
            if (!part[i]->any)
                continue;
            all->seconds[r] += part[i]->seconds[r];
            all->alone[r] += part[i]->alone[r];
            if (all->received)
                all->received[r] += part[i]->received[r];
        }
    }
}

/* ---- gradients ---- */

/* Gradients stay where they are, and are added up, until the last micro-batch; but those of copies
 * that are freed after it leave in every one. */
static bool leaves_now(const struct mp_predictor *predictor, int expert, int rank) {
    const struct mp_plan *plan = predictor->planner.plan;
    if (predictor->micro_batch + 1 == predictor->options.micro_batches)
        return true;
    if (mp_optimizer_sliced(plan->policy->optimizer))
        return plan->policy->rematerialise && mp_policy_gathers(plan->policy);
    if (mp_placement_holds(&plan->before, expert, rank))
        return false;
    return plan->policy->rematerialise || mp_predictor_is_late(predictor, expert, rank);
}

static void carry_sums(struct mp_predictor *predictor, const struct mp_transfers *transfers,
                       bool back, struct mp_carriage *carriage) {
    double bytes = mp_costs_expert_gradient_bytes(predictor->costs), sum = 0;
    carriage->any = false;
    if (transfers->count == 0)
        return;
    mp_traffic_clear(predictor->traffic);
    for (int i = 0; i < transfers->count; i++) {
        const struct mp_transfer *transfer = &transfers->item[i];
        int copy = back ? transfer->from : transfer->to;
        if (!leaves_now(predictor, transfer->expert, copy))
            continue;
        want(predictor, transfer->expert, copy);
        sum += bytes;
    }
    broadcast_all(predictor, bytes);
    predictor->prediction->bytes[MP_STAGE_BACKWARD_REDUCE] += sum;
    if (sum > 0 && !predictor->planner.policy.free_transfers)
        measure(predictor, back, carriage);
}

static void carry_slices(struct mp_predictor *predictor, struct mp_carriage *carriage) {
    const struct mp_plan *plan = predictor->planner.plan;
    double bytes = mp_costs_expert_gradient_bytes(predictor->costs), sum;
    bool back = !mp_optimizer_sums(plan->policy->optimizer);
    carriage->any = false;
    if (!mp_optimizer_sliced(plan->policy->optimizer) || !leaves_now(predictor, 0, 0))
        return;
    mp_traffic_clear(predictor->traffic);
    sum = back ? add_slices(predictor, &plan->during, bytes) : add_slices_of_sums(predictor, bytes);
    predictor->prediction->bytes[MP_STAGE_BACKWARD_REDUCE] += sum;
    if (sum > 0 && !plan->policy->free_transfers)
        measure(predictor, back, carriage);
}

void mp_predictor_carry_gradients(struct mp_predictor *predictor,
                                  struct mp_predicted_layer *layer) {
    const struct mp_plan *plan = predictor->planner.plan;
    if (plan->policy->forward_only)
        return;
    carry_prefetch(predictor, layer);
    carry_sums(predictor, &plan->reduce, true, &layer->gradient[MP_SUM_COPIES]);
    carry_sums(predictor, &plan->share, false, &layer->gradient[MP_SHARE_SUMS]);
    carry_slices(predictor, &layer->gradient[MP_SEND_SLICES]);
}

/* ---- after the step ---- */

static void add_moves(struct mp_predictor *predictor) {
    const struct mp_transfers *moves = &predictor->planner.moves;
    mp_traffic_clear(predictor->traffic);
    for (int i = 0; i < moves->count; i++) {
        const struct mp_transfer *move = &moves->item[i];
        mp_traffic_add(predictor->traffic, move->from, move->to, (double)move->bytes);
        predictor->prediction->bytes[MP_STAGE_AFTER_STEP] += (double)move->bytes;
    }
}

/* State that lies in host memory goes from host to host, and its parameters on to the device. */
static void come_up(struct mp_predictor *predictor, double done[]) {
    const struct mp_transfers *moves = &predictor->planner.moves;
    const struct mp_costs *costs = predictor->costs;
    for (int i = 0; predictor->planner.policy.offload && i < moves->count; i++)
        done[moves->item[i].to] += mp_costs_come_up(costs, mp_costs_expert_bytes(costs));
}

/* An exchange that all ranks wait for. */
void mp_predictor_move(struct mp_predictor *predictor) {
    struct mp_scheduled_phase activity = {MP_PHASE_MOVE, MP_NO_DIRECTION, -1, 0};
    struct mp_timeline *timeline = &predictor->timeline;
    struct mp_carriage *carriage = &predictor->fetch;
    add_moves(predictor);
    mp_network_alone(predictor->network, predictor->traffic, carriage->alone);
    if (carriage->received)
        mp_traffic_totals(predictor->traffic, NULL, carriage->received);
    mp_timeline_exchange_start(timeline, activity, &predictor->traffic, 1, false, carriage->alone,
                               carriage->received, timeline->clock, carriage->seconds);
    come_up(predictor, carriage->seconds);
    mp_timeline_wait_until(timeline, carriage->seconds);
    mp_timeline_forget_late(timeline);
}

/* What arrives takes room beside what is in use until then.  The update comes before its parameters
 * are used, and takes them up with all others. */
void mp_predictor_carry_moves(struct mp_predictor *predictor, struct mp_carriage *carriage) {
    const struct mp_transfers *moves = &predictor->planner.moves;
    for (int i = 0; i < moves->count; i++)
        predictor->kept[moves->item[i].to]++;
    add_moves(predictor);
    measure(predictor, false, carriage);
}

double mp_predictor_carry_homes(struct mp_predictor *predictor, int layer,
                                struct mp_carriage *carriage) {
    mp_traffic_clear(predictor->traffic);
    double bytes = add_slices(predictor, &predictor->planner.home[layer],
                              mp_costs_expert_bytes(predictor->costs));
    measure(predictor, false, carriage);
    return bytes;
}
