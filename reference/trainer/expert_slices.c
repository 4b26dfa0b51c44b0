/* Experts that are kept in slices, by all ranks or by their holders: parameters are put together on
 * holders, gradients taken apart again (SYMI, section 4; FSEP, LAER-MoE; ZeRO-1).
 *
 * Every rank makes the same list of transfers, so that messages find their way without further
 * words. */
#include "reference/trainer/internal.h"

static void add(struct mp_trainer *trainer, int *count, int layer, int expert, int from, int to,
                size_t bytes, void *source, void *destination) {
    int rank = trainer->comm->rank;
    trainer->slice_list[*count] =
        (struct mp_transfer){layer, expert, from, to, (int64_t)bytes, MP_STAGE_AFTER_STEP};
    trainer->slice_from[*count] = from == rank ? source : NULL;
    trainer->slice_to[*count] = to == rank ? destination : NULL;
    ++*count;
}

/* Lists were made for as many holders as the system announced; every rank sees the same too many.
 */
static int check_holders(const struct mp_trainer *trainer, int layer, int holders,
                         struct mp_error *error) {
    int most = trainer->planner.homes_limit * trainer->comm->ranks;
    if (holders <= most)
        return MP_OK;
    return mp_fail(error, MP_ELIMIT,
                   "layer %d: experts have %d holders in all, more than the %d of each of %d ranks "
                   "that the system announced",
                   layer, holders, trainer->planner.homes_limit, trainer->comm->ranks);
}

static int next_keeper(const struct mp_trainer *trainer, int layer, int expert, int rank) {
    return mp_keeper_next(trainer->planner.policy.optimizer, &trainer->planner.home[layer], expert,
                          rank);
}

static int start(struct mp_trainer *trainer, int count, size_t bytes, struct mp_request *request,
                 struct mp_error *error) {
    return mp_move_start(trainer->comm, trainer->slice_list, count, trainer->slice_from,
                         trainer->slice_to, bytes, trainer->model.stream, request, error);
}

int mp_trainer_gather_slices_start(struct mp_trainer *trainer, const struct mp_placement *placement,
                                   int layer, void *const chunk[], struct mp_request *request,
                                   struct mp_error *error) {
    const struct mp_experts *experts = &trainer->model.experts;
    size_t bytes = experts->slice * mp_element_bytes(trainer->device);
    int count = 0, holders = 0;
    for (int e = 0; e < placement->experts; e++)
        holders += mp_placement_copies(placement, e);
    int code = check_holders(trainer, layer, holders, error);
    if (code)
        return code;
    for (int e = 0; e < placement->experts; e++) {
        void *own = mp_experts_own_elements(experts, layer, e);
        for (int holder = mp_placement_next(placement, e, 0); holder >= 0;
             holder = mp_placement_next(placement, e, holder + 1))
            for (int keeper = next_keeper(trainer, layer, e, 0), piece = 0; keeper >= 0;
                 keeper = next_keeper(trainer, layer, e, keeper + 1), piece++)
                add(trainer, &count, layer, e, keeper, holder, bytes, own,
                    chunk[e] ? mp_experts_slice_of(experts, chunk[e], piece) : NULL);
    }
    return start(trainer, count, bytes, request, error);
}

/* Two layers may be on their way. */
static struct mp_request *request_of_homes(const struct mp_trainer *trainer, int layer) {
    return layer % 2 ? trainer->late_fetch.request[0] : trainer->fetch[0].request[0];
}

int mp_trainer_start_homes(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_placement *home = &trainer->planner.home[layer];
    int code = mp_experts_locate_held(&trainer->model.experts, layer, home, trainer->prefetch_chunk,
                                      trainer->prefetch_gradient, error);
    return code ? code
                : mp_trainer_gather_slices_start(trainer, home, layer, trainer->prefetch_chunk,
                                                 request_of_homes(trainer, layer), error);
}

int mp_trainer_wait_homes(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    return mp_request_wait(request_of_homes(trainer, layer), error);
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
static void add_gradient(struct mp_trainer *trainer, const struct mp_plan *plan, int expert,
                         int holder, float *arrival, int *count) {
    const struct mp_experts *experts = &trainer->model.experts;
    size_t bytes = experts->slice * sizeof(float);
    bool sum = mp_optimizer_sums(plan->policy->optimizer);
    float *mine = trainer->reduce_gradient[expert];
    float *to = sum ? mp_experts_own_gradient(experts, plan->layer, expert) : arrival;
    for (int keeper = next_keeper(trainer, plan->layer, expert, 0), piece = 0; keeper >= 0;
         keeper = next_keeper(trainer, plan->layer, expert, keeper + 1), piece++)
        if (!sum || mp_plan_slice_source(plan, expert, keeper) == holder)
            add(trainer, count, plan->layer, expert, holder, keeper, bytes,
                mine ? mp_experts_gradient_slice_of(experts, mine, piece) : NULL, to);
}

int mp_trainer_send_slices_start(struct mp_trainer *trainer, int layer, struct mp_request *request,
                                 struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    float *arrivals = trainer->arrivals[layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &trainer->model.experts;
    int count = 0;
    int code = check_holders(trainer, plan->layer, plan->holder_begin[plan->experts], error);
    if (!code)
        code = mp_experts_locate(experts, plan, trainer->reduce_chunk, trainer->reduce_gradient,
                                 error);
    if (code)
        return code;
    for (int e = 0; e < plan->experts; e++) {
        float *arrival = room_for_arrivals(experts, plan, e, &arrivals);
        for (int32_t at = plan->holder_begin[e]; at < plan->holder_begin[e + 1]; at++) {
            add_gradient(trainer, plan, e, plan->holder[at], arrival, &count);
            arrival += arrival ? experts->slice : 0;
        }
    }
    return start(trainer, count, experts->slice * sizeof(float), request, error);
}

void mp_trainer_sum_slices(struct mp_trainer *trainer, int layer) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    float *arrivals = trainer->arrivals[layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &trainer->model.experts;
    const struct mp_device_operations *operations = trainer->device->operations;
    for (int e = 0; e < plan->experts; e++) {
        float *own = mp_experts_own_gradient(experts, plan->layer, e);
        const float *arrival = room_for_arrivals(experts, plan, e, &arrivals);
        for (int32_t at = plan->holder_begin[e]; arrival && at < plan->holder_begin[e + 1];
             at++, arrival += experts->slice) {
            if (at == plan->holder_begin[e])
                operations->copy(trainer->device, trainer->model.stream, own, arrival,
                                 experts->slice * sizeof(float));
            else
                operations->accumulate(trainer->device, trainer->model.stream, experts->slice,
                                       arrival, own);
        }
    }
}
