/* Iterations and validation: what the schedule does, with its data before and its records behind.
 */

#include "reference/trainer/internal.h"
#include "reference/trainer/numbers.h"

/* ---- records ---- */

/* Facts of the plans that have been carried out, and the totals that they add to; `backward`: also
 * what is fetched again. */
static void count_plan(struct mp_trainer *trainer, const struct mp_plan *plan, bool backward) {
    struct mp_plan_facts *facts = &trainer->facts[plan->layer];
    struct mp_trainer_totals *totals = &trainer->totals;
    const struct mp_policy *policy = plan->policy;
    mp_plan_facts(plan, &trainer->load[plan->layer], facts);
    for (int i = 0; i < plan->fetch.count; i++)
        totals->copies[plan->fetch.item[i].stage]++;
    if (mp_optimizer_sliced(policy->optimizer))
        totals->copies[mp_plan_gather_stage(plan)] += facts->copies;
    if (backward && policy->rematerialise)
        totals->copies[MP_STAGE_BACKWARD_PREFETCH] +=
            mp_policy_gathers(policy) ? facts->copies : plan->fetch.count;
    for (int stage = 0; stage < MP_STAGES; stage++)
        if (backward || stage != MP_STAGE_BACKWARD_PREFETCH)
            totals->bytes[stage] += facts->bytes[stage];
    totals->replicas += policy->forward_only ? 0 : plan->share.count;
    totals->routes += facts->routes;
    totals->dropped += facts->routes_dropped;
}

static void count_plans(struct mp_trainer *trainer, bool backward) {
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

/* Loads and plan facts of an iteration (facts on rank 0). */
static void record_plans(struct mp_trainer *trainer) {
    for (int l = 0; l < trainer->job.layers; l++) {
        const struct mp_load *load = &trainer->load[l];
        mp_choices_record(&trainer->choices, l);
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

static void record_iteration(struct mp_trainer *trainer, struct mp_mark mark,
                             const struct mp_trainer_result *result) {
    struct mp_record_thread *compute = trainer->spans.compute;
    mp_spans_iterated(&trainer->spans, mark, trainer->model.tokens);
    if (!compute)
        return;
    if (mp_topology_nodes(&trainer->setting.topology) > 1)
        mp_record_number(compute, trainer->iteration, -1, "sent-between-nodes",
                         (double)(trainer->comm->between_bytes - mark.between_bytes));
    if (trainer->comm->rank == 0) {
        mp_record_number(compute, trainer->iteration, -1, "loss", result->loss);
        mp_record_number(compute, trainer->iteration, -1, "auxiliary-loss", result->auxiliary_loss);
    }
    record_plans(trainer);
}

/* From `mark`, the iteration's start, on. */
static int iterate(struct mp_trainer *trainer, struct mp_mark mark,
                   struct mp_trainer_result *result, struct mp_error *error) {
    trainer->result = result;
    MP_TRY(mp_schedule_iteration(&trainer->schedule, error)); /* which left half of a plan */
    count_plans(trainer, !mp_job_serves(&trainer->job));
    MP_TRY(mp_device_check(trainer->device, error));
    if (trainer->progress_error.code) {
        *error = trainer->progress_error;
        return error->code;
    }
    record_iteration(trainer, mark, result);
    trainer->iteration++;
    return MP_OK;
}

int mp_trainer_step_on(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_trainer_result *result, struct mp_error *error) {
    mp_batch_take(&trainer->batch, token, target);
    return iterate(trainer, mp_spans_mark(&trainer->spans, MP_PHASE_ITERATION), result, error);
}

int mp_trainer_forward(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_error *error) {
    mp_batch_take(&trainer->batch, token, target);
    trainer->planner.keeps = false; /* this pass may want other copies where some were sent */
    return mp_schedule_forward(&trainer->schedule, error);
}

/* ---- serving ---- */

int mp_trainer_fill_on(struct mp_trainer *trainer, const int32_t *token, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int context = trainer->job.context, step = mp_job_step_tokens(&trainer->job), code = MP_OK;
    for (int done = 0; !code && done < context; done += step) {
        /* Places behind the context are those that the first step takes. */
        model->context = done;
        mp_batch_cut(&trainer->batch, token, done);
        code = mp_trainer_forward(trainer, trainer->batch.token, trainer->batch.target, error);
    }
    model->context = context;
    return code ? code : mp_device_check(trainer->device, error);
}

int mp_trainer_fill(struct mp_trainer *trainer, struct mp_error *error) {
    if (trainer->job.context == 0)
        return MP_OK;
    mp_batch_read_context(&trainer->batch);
    return mp_trainer_fill_on(trainer, trainer->batch.context, error);
}

/* ---- iterations on the text ---- */

int mp_trainer_step(struct mp_trainer *trainer, struct mp_trainer_result *result,
                    struct mp_error *error) {
    struct mp_mark mark = mp_spans_mark(&trainer->spans, MP_PHASE_ITERATION);
    struct mp_mark before_data = mp_spans_mark(&trainer->spans, MP_PHASE_DATA);
    mp_batch_read(&trainer->batch, trainer->iteration);
    mp_batch_take(&trainer->batch, trainer->batch.token, trainer->batch.target);
    mp_spans_spent(&trainer->spans, before_data, MP_PHASE_DATA, MP_NO_DIRECTION, -1,
                   trainer->model.tokens, -1);
    return iterate(trainer, mark, result, error);
}

int mp_trainer_validate(struct mp_trainer *trainer, double *loss, struct mp_error *error) {
    struct mp_record_thread *compute = trainer->spans.compute,
                            *communication = trainer->spans.communication;
    struct mp_mark mark = mp_spans_mark(&trainer->spans, MP_PHASE_VALIDATE);
    int batches = trainer->job.validation_batches, code = MP_OK;
    double sum = 0;
    trainer->spans.compute = trainer->spans.communication = NULL; /* one span for all of it, */
    trainer->spans.validating = true;
    trainer->iteration--; /* part of the iteration just done */
    for (int i = 0; !code && i < batches; i++) {
        mp_batch_read_validation(&trainer->batch, i);
        code = mp_trainer_forward(trainer, trainer->batch.token, trainer->batch.target, error);
        if (code)
            break;
        count_plans(trainer, false);
        mp_model_head(&trainer->model, 0, false);
        sum += mp_model_loss_sum(&trainer->model, trainer->batch.loss);
    }
    if (!code)
        code = mp_comm_sum(trainer->comm, &sum, 1, error);
    trainer->spans.compute = compute;
    trainer->spans.communication = communication;
    trainer->spans.validating = false;
    *loss = sum / ((double)trainer->batch.global_tokens * batches);
    mp_spans_spent(&trainer->spans, mark, MP_PHASE_VALIDATE, MP_NO_DIRECTION, -1,
                   (int64_t)trainer->model.tokens * batches, -1);
    if (trainer->spans.stamps)
        mp_stamps_flush(trainer->spans.stamps);
    trainer->iteration++;
    return code ? code : mp_device_check(trainer->device, error);
}
