/* What plans came to: facts that are counted once they have been carried out, and recorded. */
#include "reference/trainer/internal.h"
#include "reference/trainer/numbers.h"

static void count_plan(struct mp_trainer *trainer, const struct mp_plan *plan, bool backward) {
    struct mp_plan_facts *facts = &trainer->facts[plan->layer];
    struct mp_trainer_totals *totals = &trainer->totals;
    bool sliced = mp_optimizer_sliced(plan->policy->optimizer),
         gathers = mp_policy_gathers(plan->policy);
    mp_plan_facts(plan, &trainer->load[plan->layer], facts);
    for (int i = 0; i < plan->fetch.count; i++)
        totals->copies[plan->fetch.item[i].stage]++;
    if (sliced)
        totals->copies[mp_plan_gather_stage(plan)] += facts->copies;
    if (backward && plan->policy->rematerialise)
        totals->copies[MP_STAGE_BACKWARD_PREFETCH] += gathers ? facts->copies : plan->fetch.count;
    for (int stage = 0; stage < MP_STAGES; stage++)
        if (backward || stage != MP_STAGE_BACKWARD_PREFETCH)
            totals->bytes[stage] += facts->bytes[stage];
    totals->replicas += plan->policy->forward_only ? 0 : plan->share.count;
    totals->routes += facts->routes;
    totals->dropped += facts->routes_dropped;
}

void mp_trainer_count_plans(struct mp_trainer *trainer, bool backward) {
    for (int l = 0; l < trainer->job.layers; l++)
        count_plan(trainer, mp_planner_plan(&trainer->planner, l), backward);
}

/* Bytes of experts that moved, and of parameters put together for the next step: at their homes as
 * they are by now. */
static int64_t bytes_after_step(const struct mp_trainer *trainer) {
    const struct mp_planner *planner = &trainer->planner;
    int64_t keepers = trainer->model.experts.keepers, bytes = 0;
    for (int i = 0; i < planner->moves.count; i++)
        bytes += planner->moves.item[i].bytes;
    if (!trainer->schedule.gathered)
        return bytes;
    for (int l = 0; l < trainer->job.layers; l++)
        for (int e = 0; e < trainer->setting.experts; e++)
            bytes += mp_placement_copies(&planner->home[l], e) *
                     (trainer->setting.expert_bytes * (keepers - 1) / keepers);
    return bytes;
}

void mp_trainer_record_plans(struct mp_trainer *trainer) {
    if (!trainer->spans.compute)
        return;
    for (int l = 0; l < trainer->job.layers; l++) {
        const struct mp_load *load = &trainer->load[l];
        mp_trainer_record_choices(trainer, l);
        mp_record_load(trainer->spans.compute, trainer->iteration, l, trainer->job.experts,
                       load->count + (long)trainer->comm->rank * load->experts,
                       trainer->planner.law.drops_routes ? trainer->model.state[l].routing.dropped
                                                         : NULL);
        if (trainer->comm->rank == 0)
            mp_record_named(trainer->spans.compute, trainer->iteration, l, mp_plan_fact_names,
                            &trainer->facts[l]);
    }
    if (trainer->comm->rank != 0)
        return;
    mp_record_number(trainer->spans.compute, trainer->iteration, -1, "moves",
                     trainer->planner.moves.count);
    mp_record_number(trainer->spans.compute, trainer->iteration, -1, "bytes-after-step",
                     (double)bytes_after_step(trainer));
    const void *found = mp_planner_found(&trainer->planner);
    if (found)
        mp_record_named(trainer->spans.compute, trainer->iteration, -1,
                        trainer->planner.system->facts, found);
}
