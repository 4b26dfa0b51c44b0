/* Every rank makes the same list of transfers, so that messages find their way without further
 * words. */
#include "reference/trainer/carriages.h"

int mp_slices_create(struct mp_carriages *carriages, struct mp_arena *arena,
                     struct mp_error *error) {
    const struct mp_policy *policy = &carriages->planner->policy;
    const struct mp_experts *experts = &carriages->model->experts;
    struct mp_device_memory *memory = &carriages->model->memory;
    size_t limit = (size_t)carriages->planner->homes_limit, keepers = (size_t)experts->keepers;
    size_t holders = limit * (size_t)carriages->comm->ranks;
    if (!mp_optimizer_sliced(policy->optimizer))
        return mp_arena_check(arena, error);
    MP_TAKE_EACH(arena, holders * keepers, carriages->list, carriages->from, carriages->to);
    bool own = !mp_optimizer_sums(policy->optimizer) && !policy->forward_only;
    for (int i = 0; own && i < MP_SUMS_ON_THEIR_WAY; i++)
        carriages->arrivals[i] =
            mp_device_take(memory, (int64_t)(limit * keepers * experts->slice), sizeof(float));
    return memory->lacking
               ? mp_fail(error, MP_ENOMEM, "no memory for slices of %zu holders", holders)
               : mp_arena_check(arena, error);
}

static void add(struct mp_carriages *carriages, int *count, int layer, int expert, int from, int to,
                size_t bytes, void *source, void *destination) {
    int rank = carriages->comm->rank;
    carriages->list[*count] = (struct mp_transfer){.layer = layer,
                                                   .expert = expert,
                                                   .from = from,
                                                   .to = to,
                                                   .bytes = (int64_t)bytes,
                                                   .stage = MP_STAGE_AFTER_STEP};
    carriages->from[*count] = from == rank ? source : NULL;
    carriages->to[*count] = to == rank ? destination : NULL;
    ++*count;
}

/* Lists were made for as many holders as the system announced; every rank sees the same too many.
 */
static int check_holders(const struct mp_carriages *carriages, int layer, int holders,
                         struct mp_error *error) {
    int most = carriages->planner->homes_limit * carriages->comm->ranks;
    if (holders <= most)
        return MP_OK;
    return mp_fail(error, MP_ELIMIT,
                   "layer %d: experts have %d holders in all, more than the %d of each of %d ranks "
                   "that the system announced",
                   layer, holders, carriages->planner->homes_limit, carriages->comm->ranks);
}

static int next_keeper(const struct mp_carriages *carriages, int layer, int expert, int rank) {
    return mp_keeper_next(carriages->planner->policy.optimizer, &carriages->planner->home[layer],
                          expert, rank);
}

static int start(struct mp_carriages *carriages, int count, size_t bytes,
                 struct mp_request *request, struct mp_error *error) {
    return mp_move_start(carriages->comm, carriages->list, count, carriages->from, carriages->to,
                         bytes, carriages->model->stream, request, error);
}

int mp_slices_gather_start(struct mp_carriages *carriages, const struct mp_placement *placement,
                           int layer, void *const chunk[], struct mp_request *request,
                           struct mp_error *error) {
    const struct mp_experts *experts = &carriages->model->experts;
    size_t bytes = experts->slice * mp_element_bytes(carriages->model->device);
    int count = 0, holders = 0;
    for (int e = 0; e < placement->experts; e++)
        holders += mp_placement_copies(placement, e);
    MP_TRY(check_holders(carriages, layer, holders, error));
    for (int e = 0; e < placement->experts; e++) {
        void *own = mp_experts_own_elements(experts, layer, e);
        for (int holder = mp_placement_next(placement, e, 0); holder >= 0;
             holder = mp_placement_next(placement, e, holder + 1))
            for (int keeper = next_keeper(carriages, layer, e, 0), piece = 0; keeper >= 0;
                 keeper = next_keeper(carriages, layer, e, keeper + 1), piece++)
                add(carriages, &count, layer, e, keeper, holder, bytes, own,
                    chunk[e]
                        ? mp_element_at(experts->device, chunk[e], (size_t)piece * experts->slice)
                        : NULL);
    }
    return start(carriages, count, bytes, request, error);
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
static void add_gradient(struct mp_carriages *carriages, const struct mp_plan *plan, int expert,
                         int holder, float *mine, float *arrival, int *count) {
    const struct mp_experts *experts = &carriages->model->experts;
    size_t bytes = experts->slice * sizeof(float);
    bool sum = mp_optimizer_sums(plan->policy->optimizer);
    float *to = sum ? mp_experts_own_gradient(experts, plan->layer, expert) : arrival;
    for (int keeper = next_keeper(carriages, plan->layer, expert, 0), piece = 0; keeper >= 0;
         keeper = next_keeper(carriages, plan->layer, expert, keeper + 1), piece++)
        if (!sum || mp_plan_slice_source(plan, expert, keeper) == holder)
            add(carriages, count, plan->layer, expert, holder, keeper, bytes,
                mine ? mine + (size_t)piece * experts->slice : NULL, to);
}

int mp_slices_send_start(struct mp_carriages *carriages, const struct mp_plan *plan,
                         float *const gradient[], struct mp_request *request,
                         struct mp_error *error) {
    float *arrivals = carriages->arrivals[plan->layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &carriages->model->experts;
    int count = 0;
    MP_TRY(check_holders(carriages, plan->layer, plan->holder_begin[plan->experts], error));
    for (int e = 0; e < plan->experts; e++) {
        float *arrival = room_for_arrivals(experts, plan, e, &arrivals);
        for (int32_t at = plan->holder_begin[e]; at < plan->holder_begin[e + 1]; at++) {
            add_gradient(carriages, plan, e, plan->holder[at], gradient[e], arrival, &count);
            arrival += arrival ? experts->slice : 0;
        }
    }
    return start(carriages, count, experts->slice * sizeof(float), request, error);
}

void mp_slices_sum(struct mp_carriages *carriages, const struct mp_plan *plan) {
    float *arrivals = carriages->arrivals[plan->layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &carriages->model->experts;
    const struct mp_device_operations *operations = carriages->model->device->operations;
    for (int e = 0; e < plan->experts; e++) {
        float *own = mp_experts_own_gradient(experts, plan->layer, e);
        const float *arrival = room_for_arrivals(experts, plan, e, &arrivals);
        for (int32_t at = plan->holder_begin[e]; arrival && at < plan->holder_begin[e + 1];
             at++, arrival += experts->slice) {
            if (at == plan->holder_begin[e])
                operations->copy(carriages->model->device, carriages->model->stream, own, arrival,
                                 experts->slice * sizeof(float));
            else
                operations->add(carriages->model->device, carriages->model->stream, experts->slice,
                                own, arrival, own);
        }
    }
}
