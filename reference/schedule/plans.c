/* What plans mean for the schedule. */
#include <string.h>

#include "reference/schedule/schedule.h"

static bool fetches_in(const struct mp_plan *plan, enum mp_stage stage) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage)
            return true;
    return false;
}

/* Whether a copy is freed after backward, so that its gradient can't wait for the last
 * micro-batch. */
static bool frees_copies(const struct mp_plan *plan) {
    if (!plan->policy->rematerialise)
        return !plan->policy->copies_stay && fetches_in(plan, MP_STAGE_AFTER_GATE);
    for (int i = 0; i < plan->reduce.count; i++)
        if (!mp_placement_holds(&plan->before, plan->reduce.item[i].expert,
                                plan->reduce.item[i].from))
            return true;
    return false;
}

unsigned mp_plan_travels(const struct mp_plan *plan, int micro_batch, int micro_batches) {
    bool first = micro_batch == 0, last = micro_batch + 1 == micro_batches;
    bool gathers = mp_policy_gathers(plan->policy), again = plan->policy->rematerialise;
    bool sliced = mp_optimizer_sliced(plan->policy->optimizer);
    unsigned travels = 0;
    if ((first || again || plan->policy->copies_stay) &&
        (gathers || fetches_in(plan, MP_STAGE_BEFORE_GATE)))
        travels |= 1u << MP_TRAVEL_FETCH;
    if (fetches_in(plan, MP_STAGE_AFTER_GATE))
        travels |= 1u << MP_TRAVEL_LATE_FETCH;
    if (again && (gathers || plan->fetch.count > 0))
        travels |= 1u << MP_TRAVEL_REFETCH;
    if (plan->ahead.count > 0 && last && !plan->policy->forward_only)
        travels |= 1u << MP_TRAVEL_AHEAD;
    if (plan->reduce.count > 0 && (last || (!sliced && frees_copies(plan))))
        travels |= 1u << MP_TRAVEL_SUM_COPIES;
    if (plan->share.count > 0 && last)
        travels |= 1u << MP_TRAVEL_SHARE_SUMS;
    if (sliced && (last || (again && gathers)))
        travels |= 1u << MP_TRAVEL_SEND_SLICES;
    return travels;
}

int mp_plan_steps(const struct mp_plan *plan) {
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);
    return exchange->steps ? exchange->steps(plan->topology.ranks, plan->group_size) : plan->degree;
}

int mp_plan_step(const struct mp_plan *plan, int from, int to) {
    if (!mp_exchange_of(plan->exchange)->steps)
        return 0;
    int steps = mp_plan_steps(plan);
    return (to / plan->group_size - from / plan->group_size + steps) % steps;
}

/* No route to the expert leaves its rank. */
static bool stays(const struct mp_plan *plan, int expert) {
    for (int source = 0; source < plan->topology.ranks; source++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
        for (int i = 0; i < parts; i++)
            if (part[i].run != 1 || plan->holder[part[i].first] != source)
                return false;
    }
    return true;
}

bool mp_plan_next_late(const struct mp_plan *plan, struct mp_late_copy *copy) {
    for (; copy->fetch < plan->fetch.count; copy->fetch++) {
        const struct mp_transfer *fetch = &plan->fetch.item[copy->fetch];
        if (fetch->stage != MP_STAGE_AFTER_GATE)
            continue;
        if (fetch->expert != copy->expert) {
            copy->expert = fetch->expert;
            copy->stays = stays(plan, fetch->expert);
            copy->rank = plan->during.owner[fetch->expert];
            if (copy->stays)
                return true;
        }
        copy->rank = fetch->to;
        copy->fetch++;
        return true;
    }
    return false;
}

/* The steps in which routes reach a rank's late copy from elsewhere. */
static void mark_steps(const struct mp_plan *plan, const struct mp_late_copy *copy,
                       bool needs_late[]) {
    for (int source = 0; source < plan->topology.ranks; source++)
        if (source != copy->rank && mp_plan_routes_to(plan, source, copy->expert, copy->rank) > 0)
            needs_late[mp_plan_step(plan, source, copy->rank)] = true;
}

/* The chunks of whole experts that a late copy is in. */
static void mark_chunks(const struct mp_plan *plan, bool needs_late[]) {
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *fetch = &plan->fetch.item[i];
        if (fetch->stage == MP_STAGE_AFTER_GATE)
            needs_late[plan->place_chunk[mp_plan_holder_index(plan, fetch->expert, fetch->to)]] =
                true;
    }
}

/* Whether a copy is made of what is a copy itself. */
static bool passes_copies_on(const struct mp_plan *plan) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (!mp_placement_holds(&plan->before, plan->fetch.item[i].expert,
                                plan->fetch.item[i].from))
            return true;
    return false;
}

void mp_plan_schedule_exchange(const struct mp_plan *plan, struct mp_scheduled_layer *layer) {
    bool all_stay = true, keeps = mp_exchange_of(plan->exchange)->keeps_late_rows;
    layer->steps = mp_plan_steps(plan);
    layer->passes_on = passes_copies_on(plan);
    layer->own = layer->own_first = false;
    memset(layer->needs_late, !keeps && !plan->place_chunk,
           (size_t)layer->steps * sizeof *layer->needs_late);
    if (plan->place_chunk)
        mark_chunks(plan, layer->needs_late);
    if (!keeps)
        return;
    for (struct mp_late_copy copy = {.expert = -1}; mp_plan_next_late(plan, &copy);) {
        layer->own = true;
        all_stay &= copy.stays;
        if (!copy.stays)
            mark_steps(plan, &copy, layer->needs_late);
    }
    layer->own_first = layer->own && all_stay && !fetches_in(plan, MP_STAGE_BEFORE_GATE) &&
                       !fetches_in(plan, MP_STAGE_BACKWARD_PREFETCH) &&
                       plan->policy->optimizer == MP_OPTIMIZER_OWNER;
}
