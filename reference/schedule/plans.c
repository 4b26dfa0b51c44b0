/* What plans mean for the schedule. */
#include <string.h>

#include "reference/schedule/schedule.h"

bool mp_plan_gathers(const struct mp_plan *plan) {
    return mp_optimizer_sliced(plan->optimizer) && plan->gather_stage == MP_STAGE_BEFORE_GATE;
}

static bool fetches_in(const struct mp_plan *plan, enum mp_stage stage) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage)
            return true;
    return false;
}

/* Whether a copy is freed after backward, so that its gradient can't wait for the last
 * micro-batch. */
static bool frees_copies(const struct mp_plan *plan) {
    if (!plan->rematerialise)
        return fetches_in(plan, MP_STAGE_AFTER_GATE);
    for (int i = 0; i < plan->reduce.count; i++)
        if (!mp_placement_holds(&plan->before, plan->reduce.item[i].expert,
                                plan->reduce.item[i].from))
            return true;
    return false;
}

unsigned mp_plan_travels(const struct mp_plan *plan, int micro_batch, int micro_batches) {
    bool first = micro_batch == 0, last = micro_batch + 1 == micro_batches;
    bool gathers = mp_plan_gathers(plan), again = plan->rematerialise;
    bool sliced = mp_optimizer_sliced(plan->optimizer);
    unsigned travels = 0;
    if ((first || again) && (gathers || fetches_in(plan, MP_STAGE_BEFORE_GATE)))
        travels |= 1u << MP_TRAVEL_FETCH;
    if (fetches_in(plan, MP_STAGE_AFTER_GATE))
        travels |= 1u << MP_TRAVEL_LATE_FETCH;
    if (again && (gathers || plan->fetch.count > 0))
        travels |= 1u << MP_TRAVEL_REFETCH;
    if (plan->reduce.count > 0 && (last || (!sliced && frees_copies(plan))))
        travels |= 1u << MP_TRAVEL_SUM_COPIES;
    if (plan->share.count > 0 && last)
        travels |= 1u << MP_TRAVEL_SHARE_SUMS;
    if (sliced && (last || (again && gathers)))
        travels |= 1u << MP_TRAVEL_SEND_SLICES;
    return travels;
}

int mp_plan_steps(const struct mp_plan *plan) {
    return plan->exchange == MP_EXCHANGE_PIPELINED ? plan->topology.ranks / plan->group_size : 1;
}

int mp_plan_step(const struct mp_plan *plan, int from, int to) {
    int steps = mp_plan_steps(plan);
    return steps == 1 ? 0 : (to / plan->group_size - from / plan->group_size + steps) % steps;
}

bool mp_plan_stays(const struct mp_plan *plan, int expert) {
    for (int source = 0; source < plan->topology.ranks; source++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
        for (int i = 0; i < parts; i++)
            if (part[i].run != 1 || plan->holder[part[i].first] != source)
                return false;
    }
    return true;
}

/* The steps in which routes reach a rank's late copy from elsewhere. */
static void mark_steps(const struct mp_plan *plan, int expert, int holder, bool needs_late[]) {
    for (int source = 0; source < plan->topology.ranks; source++)
        if (source != holder && mp_plan_routes_to(plan, source, expert, holder) > 0)
            needs_late[mp_plan_step(plan, source, holder)] = true;
}

void mp_plan_schedule_exchange(const struct mp_plan *plan, struct mp_scheduled_layer *layer) {
    int known = -1;
    bool stays = true, all_stay = true;
    layer->steps = mp_plan_steps(plan);
    layer->own = layer->own_first = false;
    memset(layer->needs_late, 0, (size_t)layer->steps * sizeof *layer->needs_late);
    if (plan->exchange != MP_EXCHANGE_PIPELINED)
        return;
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *fetch = &plan->fetch.item[i];
        if (fetch->stage != MP_STAGE_AFTER_GATE) {
            all_stay = false;
            continue;
        }
        layer->own = true;
        if (fetch->expert != known)
            stays = mp_plan_stays(plan, fetch->expert);
        known = fetch->expert;
        if (stays)
            continue;
        all_stay = false;
        mark_steps(plan, fetch->expert, fetch->to, layer->needs_late);
    }
    layer->own_first = layer->own && all_stay && plan->optimizer == MP_OPTIMIZER_OWNER;
}
