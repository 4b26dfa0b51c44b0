/* Experts that every rank keeps a slice of: parameters are put together on their holders, gradients
 * taken apart again (SYMI, section 4; FSEP, LAER-MoE).
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
            for (int rank = 0; rank < placement->ranks; rank++)
                add(trainer, &count, layer, e, rank, holder, bytes, own,
                    chunk[e] ? mp_experts_slice_of(experts, chunk[e], rank) : NULL);
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

/* The slices of a sum come from one holder and go straight to their place; holders' own gradients
 * arrive beside each other and are added in the order of holders. */
int mp_trainer_send_slices_start(struct mp_trainer *trainer, int layer, struct mp_request *request,
                                 struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    float *arrivals = trainer->arrivals[layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &trainer->model.experts;
    size_t bytes = experts->slice * sizeof(float);
    int count = 0, ranks = plan->topology.ranks;
    int code = check_holders(trainer, plan->layer, plan->holder_begin[plan->experts], error);
    if (!code)
        code = mp_experts_locate(experts, plan, trainer->reduce_chunk, trainer->reduce_gradient,
                                 error);
    if (code)
        return code;
    for (int e = 0; e < plan->experts; e++) {
        float *mine = trainer->reduce_gradient[e];
        float *own = mp_experts_own_slice(experts, experts->slice_gradient, plan->layer, e);
        for (int32_t at = plan->holder_begin[e]; at < plan->holder_begin[e + 1]; at++) {
            float *arrival = arrivals ? arrivals + (size_t)at * experts->slice : NULL;
            for (int rank = 0; rank < ranks; rank++) {
                float *slice = mine ? mp_experts_gradient_slice_of(experts, mine, rank) : NULL;
                if (plan->optimizer == MP_OPTIMIZER_SLICES)
                    add(trainer, &count, plan->layer, e, plan->holder[at], rank, bytes, slice,
                        arrival);
                else if (mp_plan_slice_source(plan, e, rank) == plan->holder[at])
                    add(trainer, &count, plan->layer, e, plan->holder[at], rank, bytes, slice, own);
            }
        }
    }
    return start(trainer, count, bytes, request, error);
}

void mp_trainer_sum_slices(struct mp_trainer *trainer, int layer) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    const float *arrivals = trainer->arrivals[layer % MP_SUMS_ON_THEIR_WAY];
    const struct mp_experts *experts = &trainer->model.experts;
    const struct mp_device_operations *operations = trainer->device->operations;
    if (plan->optimizer != MP_OPTIMIZER_SLICES)
        return;
    for (int e = 0; e < plan->experts; e++) {
        float *own = mp_experts_own_slice(experts, experts->slice_gradient, plan->layer, e);
        for (int32_t at = plan->holder_begin[e]; at < plan->holder_begin[e + 1]; at++) {
            const float *arrival = arrivals + (size_t)at * experts->slice;
            if (at == plan->holder_begin[e])
                operations->copy(trainer->device, trainer->model.stream, own, arrival,
                                 experts->slice * sizeof(float));
            else
                operations->accumulate(trainer->device, trainer->model.stream, experts->slice,
                                       arrival, own);
        }
    }
}
