/* Every rank makes the same list of transfers, so that messages find their way without further
 * words. */
#include "reference/trainer/slices.h"

int mp_slices_create(struct mp_slices *slices, struct mp_arena *arena, struct mp_error *error) {
    const struct mp_policy *policy = &slices->planner->policy;
    const struct mp_experts *experts = &slices->model->experts;
    size_t limit = (size_t)slices->planner->homes_limit, keepers = (size_t)experts->keepers;
    size_t holders = limit * (size_t)slices->comm->ranks;
    size_t bytes = limit * keepers * experts->slice * sizeof(float);
    if (!mp_optimizer_sliced(policy->optimizer))
        return mp_arena_check(arena, error);
    MP_TAKE_EACH(arena, holders * keepers, slices->list, slices->from, slices->to);
    bool own = !mp_optimizer_sums(policy->optimizer) && !policy->forward_only;
    for (int i = 0; own && i < MP_SUMS_ON_THEIR_WAY; i++) {
        slices->arrivals[i] =
            slices->model->device->operations->allocate(slices->model->device, bytes ? bytes : 64);
        if (!slices->arrivals[i])
            return mp_fail(error, MP_ENOMEM, "no memory for slices of %zu holders", holders);
    }
    return mp_arena_check(arena, error);
}

void mp_slices_destroy(struct mp_slices *slices) {
    for (int i = 0; slices->model && slices->model->device && i < MP_SUMS_ON_THEIR_WAY; i++)
        slices->model->device->operations->release(slices->model->device, slices->arrivals[i]);
}

static void add(struct mp_slices *slices, int *count, int layer, int expert, int from, int to,
                size_t bytes, void *source, void *destination) {
    int rank = slices->comm->rank;
    slices->list[*count] = (struct mp_transfer){.layer = layer,
                                                .expert = expert,
                                                .from = from,
                                                .to = to,
                                                .bytes = (int64_t)bytes,
                                                .stage = MP_STAGE_AFTER_STEP};
    slices->from[*count] = from == rank ? source : NULL;
    slices->to[*count] = to == rank ? destination : NULL;
    ++*count;
}

/* Lists were made for as many holders as the system announced; every rank sees the same too many.
 */
static int check_holders(const struct mp_slices *slices, int layer, int holders,
                         struct mp_error *error) {
    int most = slices->planner->homes_limit * slices->comm->ranks;
    if (holders <= most)
        return MP_OK;
    return mp_fail(error, MP_ELIMIT,
                   "layer %d: experts have %d holders in all, more than the %d of each of %d ranks "
                   "that the system announced",
                   layer, holders, slices->planner->homes_limit, slices->comm->ranks);
}

static int next_keeper(const struct mp_slices *slices, int layer, int expert, int rank) {
    return mp_keeper_next(slices->planner->policy.optimizer, &slices->planner->home[layer], expert,
                          rank);
}

static int start(struct mp_slices *slices, int count, size_t bytes, struct mp_request *request,
                 struct mp_error *error) {
    return mp_move_start(slices->comm, slices->list, count, slices->from, slices->to, bytes,
                         slices->model->stream, request, error);
}

int mp_slices_gather_start(struct mp_slices *slices, const struct mp_placement *placement,
                           int layer, void *const chunk[], struct mp_request *request,
                           struct mp_error *error) {
    const struct mp_experts *experts = &slices->model->experts;
    size_t bytes = experts->slice * mp_element_bytes(slices->model->device);
    int count = 0, holders = 0;
    for (int e = 0; e < placement->experts; e++)
        holders += mp_placement_copies(placement, e);
    MP_TRY(check_holders(slices, layer, holders, error));
    for (int e = 0; e < placement->experts; e++) {
        void *own = mp_experts_own_elements(experts, layer, e);
        for (int holder = mp_placement_next(placement, e, 0); holder >= 0;
             holder = mp_placement_next(placement, e, holder + 1))
            for (int keeper = next_keeper(slices, layer, e, 0), piece = 0; keeper >= 0;
                 keeper = next_keeper(slices, layer, e, keeper + 1), piece++)
                add(slices, &count, layer, e, keeper, holder, bytes, own,
                    chunk[e] ? mp_experts_slice_of(experts, chunk[e], piece) : NULL);
    }
    return start(slices, count, bytes, request, error);
}

/* Holders' own gradients arrive beside each other and are added in the order of holders: room for
 * those of the next expert that this rank keeps a slice of. */
static float *room_for_arrivals(const struct mp_experts *experts, const struct mp_plan *plan,
                                int expert, float **next) {
    float *room = *next;
    if (!room || !mp_experts_own_gradient(experts, plan->layer, expert))
        return NULL;
    int holders = plan->holder_begin[expert + 1] - plan->holder_begin[expert];
    *next += (size_t)holders * experts->slice;
    return room;
}

/* A holder's gradient, or the sum that it has, to those who keep slices.  The slices of a sum come
 * from one holder and go straight to their place. */
static void add_gradient(struct mp_slices *slices, const struct mp_plan *plan, int expert,
                         int holder, float *mine, float *arrival, int *count) {
    const struct mp_experts *experts = &slices->model->experts;
    size_t bytes = experts->slice * sizeof(float);
    bool sum = mp_optimizer_sums(plan->policy->optimizer);
    float *to = sum ? mp_experts_own_gradient(experts, plan->layer, expert) : arrival;
    for (int keeper = next_keeper(slices, plan->layer, expert, 0), piece = 0; keeper >= 0;
         keeper = next_keeper(slices, plan->layer, expert, keeper + 1), piece++)
        if (!sum || mp_plan_slice_source(plan, expert, keeper) == holder)
            add(slices, count, plan->layer, expert, holder, keeper, bytes,
                mine ? mp_experts_gradient_slice_of(experts, mine, piece) : NULL, to);
}

int mp_slices_send_start(struct mp_slices *slices, const struct mp_plan *plan,
                         float *const gradient[], struct mp_request *request,
                         struct mp_error *error) {
    float *arrivals = slices->arrivals[plan->layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &slices->model->experts;
    int count = 0;
    MP_TRY(check_holders(slices, plan->layer, plan->holder_begin[plan->experts], error));
    for (int e = 0; e < plan->experts; e++) {
        float *arrival = room_for_arrivals(experts, plan, e, &arrivals);
        for (int32_t at = plan->holder_begin[e]; at < plan->holder_begin[e + 1]; at++) {
            add_gradient(slices, plan, e, plan->holder[at], gradient[e], arrival, &count);
            arrival += arrival ? experts->slice : 0;
        }
    }
    return start(slices, count, experts->slice * sizeof(float), request, error);
}

void mp_slices_sum(struct mp_slices *slices, const struct mp_plan *plan) {
    float *arrivals = slices->arrivals[plan->layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &slices->model->experts;
    const struct mp_device_operations *operations = slices->model->device->operations;
    for (int e = 0; e < plan->experts; e++) {
        float *own = mp_experts_own_gradient(experts, plan->layer, e);
        const float *arrival = room_for_arrivals(experts, plan, e, &arrivals);
        for (int32_t at = plan->holder_begin[e]; arrival && at < plan->holder_begin[e + 1];
             at++, arrival += experts->slice) {
            if (at == plan->holder_begin[e])
                operations->copy(slices->model->device, slices->model->stream, own, arrival,
                                 experts->slice * sizeof(float));
            else
                operations->add(slices->model->device, slices->model->stream, experts->slice, own,
                                arrival, own);
        }
    }
}
