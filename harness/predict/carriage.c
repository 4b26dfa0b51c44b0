#include "harness/predict/carriage.h"

#include <string.h>

#include "reference/schedule/schedule.h"

static void create_carriage(struct mp_arena *memory, int ranks, bool spans,
                            struct mp_carriage *carriage) {
    MP_TAKE_EACH(memory, ranks, carriage->seconds, carriage->alone, carriage->others,
                 carriage->level);
    if (spans)
        MP_TAKE(memory, carriage->received, ranks);
}

int mp_carrier_create(struct mp_arena *memory, int experts, int layers, bool spans,
                      struct mp_carrier *carrier, struct mp_error *error) {
    int ranks = carrier->ranks, words = (ranks + 63) / 64;
    create_carriage(memory, ranks, spans, &carrier->fetch);
    create_carriage(memory, ranks, spans, &carrier->late_fetch);
    create_carriage(memory, ranks, spans, &carrier->ahead);
    MP_TAKE(memory, carrier->layer, layers);
    for (int l = 0; carrier->layer && l < layers; l++) {
        create_carriage(memory, ranks, spans, &carrier->layer[l].prefetch);
        create_carriage(memory, ranks, spans, &carrier->layer[l].ahead);
        for (int i = 0; i < MP_GRADIENT_STAGES; i++)
            create_carriage(memory, ranks, spans, &carrier->layer[l].gradient[i]);
    }
    carrier->late.words = words;
    MP_TAKE_EACH(memory, experts * words, carrier->wanted, carrier->entries, carrier->late.rank);
    MP_TAKE_EACH(memory, experts, carrier->listed, carrier->touched);
    MP_TAKE_EACH(memory, ranks, carrier->receiver, carrier->hop, carrier->holds);
    carrier->zero = mp_arena_take(memory, (size_t)ranks, sizeof *carrier->zero);
    MP_TRY(mp_arena_check(memory, error));
    return mp_traffic_create(carrier->network, &carrier->traffic, error);
}

/* ---- copies that are fetched late ---- */

void mp_late_copies_mark(struct mp_late_copies *late, const struct mp_plan *plan) {
    if (late->any)
        memset(late->rank, 0, (size_t)plan->experts * (size_t)late->words * sizeof *late->rank);
    late->any = false;
    for (struct mp_late_copy copy = {.expert = -1}; mp_plan_next_late(plan, &copy);) {
        late->any = true;
        late->rank[(long)copy.expert * late->words + copy.rank / 64] |= UINT64_C(1)
                                                                        << (copy.rank & 63);
    }
}

bool mp_is_late(const struct mp_late_copies *late, int expert, int rank) {
    return late->any && late->rank[(long)expert * late->words + rank / 64] >> (rank & 63) & 1;
}

/* ---- broadcasts ---- */

/* Notes that an expert goes to a rank, and whether it comes into the node there. */
static void want(struct mp_carrier *carrier, int expert, int rank, bool enters) {
    int words = carrier->planner->plan->during.words;
    carrier->wanted[(long)expert * words + rank / 64] |= UINT64_C(1) << (rank & 63);
    carrier->entries[(long)expert * words + rank / 64] |= (uint64_t)enters << (rank & 63);
    if (carrier->listed[expert])
        return;
    carrier->listed[expert] = true;
    carrier->touched[carrier->touched_count++] = expert;
}

/* Receivers of an expert, ascending, and no wants any more. */
static int take_receivers(struct mp_carrier *carrier, int expert, struct mp_receiver receiver[]) {
    int words = carrier->planner->plan->during.words, count = 0;
    uint64_t *row = carrier->wanted + (long)expert * words;
    uint64_t *entries = carrier->entries + (long)expert * words;
    for (int word = 0; word < words; word++) {
        for (uint64_t bits = row[word]; bits; bits &= bits - 1) {
            int bit = __builtin_ctzll(bits);
            receiver[count++] = (struct mp_receiver){word * 64 + bit, entries[word] >> bit & 1};
        }
        row[word] = entries[word] = 0;
    }
    carrier->listed[expert] = false;
    return count;
}

/* NCCL's own broadcast of an expert to all ranks, where the job wants it. */
static bool by_ring(const struct mp_carrier *carrier, int receivers) {
    const struct mp_job *job = carrier->job;
    return job->gather == MP_GATHER_BROADCASTS && job->transport != MP_TRANSPORT_MPI &&
           receivers + 1 == carrier->ranks;
}

static void broadcast(struct mp_carrier *carrier, int expert, int from, double bytes) {
    const struct mp_topology *topology = &carrier->planner->setting.topology;
    struct mp_traffic *traffic = carrier->traffic;
    struct mp_hop *hop = carrier->hop;
    int count = take_receivers(carrier, expert, carrier->receiver);
    if (by_ring(carrier, count))
        mp_hops_ring(carrier->ranks, from, hop);
    else
        mp_hops(topology, expert, from, carrier->receiver, count, hop);
    for (int i = 0; i < count; i++)
        mp_traffic_add(traffic, hop[i].from, hop[i].to, bytes);
}

static void broadcast_all(struct mp_carrier *carrier, double bytes) {
    const int32_t *owner = carrier->planner->plan->during.owner;
    for (int i = 0; i < carrier->touched_count; i++)
        broadcast(carrier, carrier->touched[i], owner[carrier->touched[i]], bytes);
    carrier->touched_count = 0;
}

/* ---- durations ---- */

/* The traffic that has been put together, all ranks starting at once. */
static void measure(struct mp_carrier *carrier, bool back, struct mp_carriage *carriage) {
    carriage->any = true;
    mp_network_exchange(carrier->network, carrier->traffic, back, carrier->zero, carriage->seconds);
    mp_network_alone(carrier->network, carrier->traffic, carriage->alone, carriage->others,
                     carriage->level);
    if (carriage->received)
        mp_traffic_totals(carrier->traffic, back ? carriage->received : NULL,
                          back ? NULL : carriage->received);
}

/* ---- slices ---- */

void mp_count_held(const struct mp_placement *placement, double holds[]) {
    memset(holds, 0, (size_t)placement->ranks * sizeof *holds);
    for (int expert = 0; expert < placement->experts; expert++) {
        const uint64_t *row = placement->holder + (long)expert * placement->words;
        for (int word = 0; word < placement->words; word++)
            for (uint64_t bits = row[word]; bits; bits &= bits - 1)
                holds[word * 64 + __builtin_ctzll(bits)]++;
    }
}

/* Every holder sends every other one its slice.  Returns all bytes. */
static double add_replica_slices(struct mp_carrier *carrier, const struct mp_placement *placement,
                                 double expert_bytes) {
    double sum = 0;
    for (int expert = 0; expert < placement->experts; expert++) {
        double slice = expert_bytes / mp_placement_copies(placement, expert);
        for (int from = mp_placement_next(placement, expert, 0); from >= 0;
             from = mp_placement_next(placement, expert, from + 1))
            for (int to = mp_placement_next(placement, expert, 0); to >= 0;
                 to = mp_placement_next(placement, expert, to + 1)) {
                if (from == to)
                    continue;
                mp_traffic_add(carrier->traffic, from, to, slice);
                sum += slice;
            }
    }
    return sum;
}

/* Every keeper sends every holder its slice of each expert there.  Returns all bytes. */
static double add_slices(struct mp_carrier *carrier, const struct mp_placement *placement,
                         double expert_bytes) {
    if (mp_optimizer_of_replicas(carrier->planner->policy.optimizer))
        return add_replica_slices(carrier, placement, expert_bytes);
    double slice = expert_bytes / carrier->ranks, sum = 0;
    mp_count_held(placement, carrier->holds);
    for (int from = 0; from < carrier->ranks; from++)
        for (int to = 0; to < carrier->ranks; to++) {
            double bytes = from == to ? 0 : carrier->holds[to] * slice;
            sum += bytes;
            if (bytes > 0)
                mp_traffic_add(carrier->traffic, from, to, bytes);
        }
    return sum;
}

/* Every keeper gets its slice of each sum from one of the holders, which replicas are themselves.
 * Returns all bytes. */
static double add_slices_of_sums(struct mp_carrier *carrier, double expert_bytes) {
    const struct mp_plan *plan = carrier->planner->plan;
    double slice = expert_bytes / carrier->ranks, sum = 0;
    if (mp_optimizer_of_replicas(plan->policy->optimizer))
        return 0;
    for (int expert = 0; expert < plan->experts; expert++)
        for (int rank = 0; rank < carrier->ranks; rank++) {
            int source = mp_plan_slice_source(plan, expert, rank);
            if (source == rank)
                continue;
            mp_traffic_add(carrier->traffic, source, rank, slice);
            sum += slice;
        }
    return sum;
}

/* ---- parameters ---- */

/* Fetches of a stage from who is not the expert's owner: the first one of its expert and source
 * takes the others with it. */
static void pass_on(struct mp_carrier *carrier, int first, double bytes) {
    const struct mp_transfers *list = &carrier->planner->plan->fetch;
    const struct mp_transfer *this = &list->item[first];
    for (int i = 0; i < list->count; i++) {
        const struct mp_transfer *other = &list->item[i];
        if (other->stage != this->stage || other->expert != this->expert ||
            other->from != this->from)
            continue;
        if (i < first)
            return;
        want(carrier, other->expert, other->to, other->enters);
    }
    broadcast(carrier, this->expert, this->from, bytes);
    carrier->touched_count--;
}

void mp_carrier_fetch(struct mp_carrier *carrier, enum mp_stage stage, bool first,
                      struct mp_carriage *carriage) {
    const struct mp_plan *plan = carrier->planner->plan;
    double bytes = carrier->costs->sizes.expert, sum = 0;
    bool before = stage == MP_STAGE_BEFORE_GATE;
    carriage->any = false;
    if (before && !first && !plan->policy->rematerialise && !plan->policy->copies_stay)
        return; /* they are still there */
    if (plan->fetch.count == 0 && !(before && mp_policy_gathers(plan->policy)))
        return;
    mp_traffic_clear(carrier->traffic);
    if (before && mp_policy_gathers(plan->policy))
        sum += add_slices(carrier, &plan->during, bytes);
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        if (transfer->stage != stage)
            continue;
        if (transfer->from == plan->during.owner[transfer->expert])
            want(carrier, transfer->expert, transfer->to, transfer->enters);
        sum += bytes;
    }
    broadcast_all(carrier, bytes);
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage &&
            plan->fetch.item[i].from != plan->during.owner[plan->fetch.item[i].expert])
            pass_on(carrier, i, bytes);
    carrier->bytes[stage] += sum;
    if (plan->policy->rematerialise && !plan->policy->forward_only)
        carrier->bytes[MP_STAGE_BACKWARD_PREFETCH] += sum;
    if (sum > 0 && !plan->policy->free_transfers)
        measure(carrier, false, carriage);
}

/* What is freed after forward comes again for backward: both stages together, with gates of any
 * level. */
static void carry_prefetch(struct mp_carrier *carrier, struct mp_carriage *all) {
    const struct mp_carriage *part[] = {&carrier->fetch, &carrier->late_fetch};
    all->any = carrier->planner->policy.rematerialise && (part[0]->any || part[1]->any);
    for (int r = 0; all->any && r < carrier->ranks; r++) {
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
        all->others[r] = all->seconds[r];
    }
}

/* ---- gradients ---- */

/* Gradients stay where they are, and are added up, until the last micro-batch; but those of copies
 * that are freed after it leave in every one. */
static bool leaves_now(const struct mp_carrier *carrier, bool last, int expert, int rank) {
    const struct mp_plan *plan = carrier->planner->plan;
    if (last)
        return true;
    if (mp_optimizer_sliced(plan->policy->optimizer))
        return plan->policy->rematerialise && mp_policy_gathers(plan->policy);
    if (mp_placement_holds(&plan->before, expert, rank))
        return false;
    return plan->policy->rematerialise ||
           (!plan->policy->copies_stay && mp_is_late(&carrier->late, expert, rank));
}

/* The transfers of a list that leave now. */
static void carry_list(struct mp_carrier *carrier, const struct mp_transfers *transfers,
                       enum mp_stage stage, bool last, bool back, struct mp_carriage *carriage) {
    const struct mp_sizes *sizes = &carrier->costs->sizes;
    double bytes = stage == MP_STAGE_BACKWARD_REDUCE ? sizes->expert_gradient : sizes->expert;
    double sum = 0;
    carriage->any = false;
    if (transfers->count == 0)
        return;
    mp_traffic_clear(carrier->traffic);
    for (int i = 0; i < transfers->count; i++) {
        const struct mp_transfer *transfer = &transfers->item[i];
        int copy = back ? transfer->from : transfer->to;
        if (!leaves_now(carrier, last, transfer->expert, copy))
            continue;
        want(carrier, transfer->expert, copy, transfer->enters);
        sum += bytes;
    }
    broadcast_all(carrier, bytes);
    carrier->bytes[stage] += sum;
    if (sum > 0 && !carrier->planner->policy.free_transfers)
        measure(carrier, back, carriage);
}

/* What goes ahead does so once, with the last micro-batch. */
static void carry_ahead(struct mp_carrier *carrier, bool last, struct mp_carriage *carriage) {
    carriage->any = false;
    if (last)
        carry_list(carrier, &carrier->planner->plan->ahead, MP_STAGE_BACKWARD_PREFETCH, last, false,
                   carriage);
}

static void carry_slices(struct mp_carrier *carrier, bool last, struct mp_carriage *carriage) {
    const struct mp_plan *plan = carrier->planner->plan;
    double bytes = carrier->costs->sizes.expert_gradient, sum;
    bool back = !mp_optimizer_sums(plan->policy->optimizer);
    carriage->any = false;
    if (!mp_optimizer_sliced(plan->policy->optimizer) || !leaves_now(carrier, last, 0, 0))
        return;
    mp_traffic_clear(carrier->traffic);
    sum = back ? add_slices(carrier, &plan->during, bytes) : add_slices_of_sums(carrier, bytes);
    carrier->bytes[MP_STAGE_BACKWARD_REDUCE] += sum;
    if (sum > 0 && !plan->policy->free_transfers)
        measure(carrier, back, carriage);
}

void mp_carrier_gradients(struct mp_carrier *carrier, int layer, bool last) {
    const struct mp_plan *plan = carrier->planner->plan;
    struct mp_layer_carriages *of = &carrier->layer[layer];
    if (plan->policy->forward_only)
        return;
    carry_prefetch(carrier, &of->prefetch);
    carry_list(carrier, &plan->reduce, MP_STAGE_BACKWARD_REDUCE, last, true,
               &of->gradient[MP_SUM_COPIES]);
    carry_list(carrier, &plan->share, MP_STAGE_BACKWARD_REDUCE, last, false,
               &of->gradient[MP_SHARE_SUMS]);
    carry_slices(carrier, last, &of->gradient[MP_SEND_SLICES]);
    carry_ahead(carrier, last, &of->ahead);
}

/* ---- after the step ---- */

static void add_moves(struct mp_carrier *carrier) {
    const struct mp_transfers *moves = &carrier->planner->moves;
    mp_traffic_clear(carrier->traffic);
    for (int i = 0; i < moves->count; i++) {
        const struct mp_transfer *move = &moves->item[i];
        mp_traffic_add(carrier->traffic, move->from, move->to, (double)move->bytes);
        carrier->bytes[MP_STAGE_AFTER_STEP] += (double)move->bytes;
    }
}

/* State that lies in host memory goes from host to host, and its parameters on to the device. */
static void come_up(struct mp_carrier *carrier, double done[]) {
    const struct mp_transfers *moves = &carrier->planner->moves;
    const struct mp_costs *costs = carrier->costs;
    for (int i = 0; carrier->planner->policy.offload && i < moves->count; i++)
        done[moves->item[i].to] += mp_costs_come_up(costs, costs->sizes.expert);
}

void mp_carrier_move(struct mp_carrier *carrier, struct mp_timeline *timeline) {
    struct mp_scheduled_phase activity = {MP_PHASE_MOVE, MP_NO_DIRECTION, -1, 0, MP_ALL_PRODUCTS};
    struct mp_carriage *carriage = &carrier->fetch;
    add_moves(carrier);
    mp_network_alone(carrier->network, carrier->traffic, carriage->alone, NULL, NULL);
    if (carriage->received)
        mp_traffic_totals(carrier->traffic, NULL, carriage->received);
    mp_timeline_exchange_start(timeline, activity, &carrier->traffic, 1, false, carriage->alone,
                               carriage->received, timeline->clock, carriage->seconds);
    come_up(carrier, carriage->seconds);
    mp_timeline_wait_until(timeline, carriage->seconds);
    mp_timeline_forget_late(timeline);
}

void mp_carrier_moves(struct mp_carrier *carrier, struct mp_carriage *carriage) {
    add_moves(carrier);
    measure(carrier, false, carriage);
}

double mp_carrier_homes(struct mp_carrier *carrier, int layer, struct mp_carriage *carriage) {
    mp_traffic_clear(carrier->traffic);
    double bytes =
        add_slices(carrier, &carrier->planner->home[layer], carrier->costs->sizes.expert);
    measure(carrier, false, carriage);
    return bytes;
}
