/* One iteration: forward, backward, optimizer, owner changes. */
#include <string.h>

#include "profiler/nvtx/emit.h"
#include "reference/model/replay.h"
#include "reference/trainer/internal.h"

int mp_trainer_force_choices(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_loads *loads = &trainer->loads;
    uint64_t turn = (uint64_t)trainer->iteration * 131 + (uint64_t)layer * 17;
    int top_k = trainer->model.shape.top_k, experts = trainer->job.experts;
    if (trainer->forced_count)
        return mp_replay_choices(trainer->model.tokens, top_k, experts, trainer->forced_count, turn,
                                 trainer->forced, error);
    int tokens = trainer->model.tokens / loads->sources, code = MP_OK;
    for (int s = 0; s < loads->sources && !code; s++)
        code = mp_replay_choices(
            tokens, top_k, experts, mp_loads_row(loads, trainer->iteration, layer, s), turn,
            trainer->forced + (size_t)s * (size_t)tokens * (size_t)top_k, error);
    return code;
}

int mp_trainer_forward(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_EMBED);
    mp_model_embed(model, token, target);
    mp_trainer_spent(trainer, mark, MP_PHASE_EMBED, MP_FORWARD, -1, model->tokens, -1);
    for (int l = 0; l < trainer->job.layers; l++) {
        int code = mp_trainer_plan_before_gate(trainer, l, error);
        if (code)
            return code;
        mark = mp_trainer_mark(trainer, MP_PHASE_ATTENTION);
        mp_model_attention(model, l);
        code = mp_comm_progress(trainer->comm, error);
        mp_trainer_spent(trainer, mark, MP_PHASE_ATTENTION, MP_FORWARD, l, model->tokens, -1);
        if (!code)
            code = mp_trainer_moe_forward(trainer, l, error);
        if (code)
            return code;
    }
    return MP_OK;
}

/* Sums a bucket of non-expert gradients over all ranks while backward goes on. */
static int start_bucket(struct mp_trainer *trainer, int bucket, struct mp_error *error) {
    struct mp_dense *dense = &trainer->model.dense;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_ALLREDUCE);
    size_t begin = dense->bucket[bucket], end = dense->bucket[bucket + 1];
    trainer->bucket_flight[bucket] =
        mp_trainer_departed(trainer, mp_trainer_now(trainer), MP_PHASE_ALLREDUCE);
    int code = mp_all_reduce_start(trainer->comm, dense->gradient + begin, end - begin,
                                   trainer->model.stream, trainer->bucket[bucket], error);
    int layer = bucket < trainer->job.layers ? bucket : -1;
    mp_trainer_spent(trainer, mark, MP_PHASE_ALLREDUCE, MP_BACKWARD, layer, -1, -1);
    return code;
}

static int finish_buckets(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_ALLREDUCE);
    const struct mp_dense *dense = &trainer->model.dense;
    int code = MP_OK;
    for (int b = trainer->job.layers - 1; !code && b >= -1; b--) {
        int bucket = b < 0 ? trainer->job.layers : b; /* in the order in which they were started */
        code = mp_request_wait(trainer->bucket[bucket], error);
        size_t floats = dense->bucket[bucket + 1] - dense->bucket[bucket];
        mp_trainer_arrived(trainer, trainer->bucket_flight[bucket], MP_PHASE_ALLREDUCE, MP_BACKWARD,
                           b, (int64_t)(floats * sizeof(float)));
    }
    mp_trainer_spent(trainer, mark, MP_PHASE_ALLREDUCE, MP_BACKWARD, -1, -1, -1);
    return code;
}

static int backward(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int layers = trainer->job.layers;
    int code = mp_trainer_prefetch(trainer, layers - 1, error);
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_HEAD);
    mp_model_head(model, 1.0f / (float)trainer->global_tokens, true);
    mp_trainer_spent(trainer, mark, MP_PHASE_HEAD, MP_BACKWARD, -1, model->tokens, -1);
    for (int l = layers - 1; !code && l >= 0; l--) {
        code = mp_trainer_moe_backward(trainer, l, error);
        if (!code && l > 0)
            code = mp_trainer_prefetch(trainer, l - 1, error);
        if (code)
            return code;
        mark = mp_trainer_mark(trainer, MP_PHASE_ATTENTION);
        mp_model_attention_backward(model, l);
        code = mp_comm_progress(trainer->comm, error);
        mp_trainer_spent(trainer, mark, MP_PHASE_ATTENTION, MP_BACKWARD, l, model->tokens, -1);
        if (!code)
            code = start_bucket(trainer, l, error);
    }
    if (code)
        return code;
    mark = mp_trainer_mark(trainer, MP_PHASE_EMBED);
    mp_model_embed_backward(model);
    mp_trainer_spent(trainer, mark, MP_PHASE_EMBED, MP_BACKWARD, -1, model->tokens, -1);
    code = start_bucket(trainer, layers, error);
    if (!code)
        code = mp_trainer_finish_reduces(trainer, error);
    return code ? code : finish_buckets(trainer, error);
}

static void update(struct mp_trainer *trainer) {
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_OPTIMIZER);
    const struct mp_job *job = &trainer->job;
    struct mp_adamw settings = {.learning_rate = (float)job->learning_rate,
                                .beta1 = (float)job->beta1,
                                .beta2 = (float)job->beta2,
                                .epsilon = (float)job->epsilon,
                                .weight_decay = (float)job->weight_decay,
                                .step = ++trainer->updates};
    mp_dense_update(&trainer->model.dense, trainer->model.stream, &settings);
    mp_experts_update(&trainer->model.experts, trainer->model.stream, &settings);
    mp_trainer_spent(trainer, mark, MP_PHASE_OPTIMIZER, MP_NO_DIRECTION, -1, -1, -1);
}

/* Experts to their new homes; with slices nothing of them moves but the next gathering. */
static int rehome(struct mp_trainer *trainer, const struct mp_rehome *change,
                  struct mp_error *error) {
    bool sliced = mp_optimizer_sliced(trainer->optimizer);
    int64_t bytes = trainer->setting.expert_bytes * (change->leave_state ? 1 : 3);
    int code =
        mp_rehome_transfers(trainer->home, trainer->next, trainer->job.layers,
                            &trainer->setting.topology, sliced ? 0 : bytes, &trainer->moves, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_MOVE);
    trainer->totals.moves += trainer->moves.count;
    if (!sliced)
        code = mp_trainer_rehome(trainer, change->leave_state, error);
    for (int l = 0; l < trainer->job.layers; l++)
        mp_placement_copy(&trainer->home[l], &trainer->next[l]);
    mp_trainer_spent(trainer, mark, MP_PHASE_MOVE, MP_NO_DIRECTION, -1, -1, -1);
    return code;
}

/* What the system learns from the iteration, and the homes it wants. */
static int after_step(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_rehome change = {.next = trainer->next};
    int code = MP_OK;
    trainer->moves.count = 0;
    if (trainer->system->after_step) {
        struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_PLAN);
        for (int l = 0; l < trainer->job.layers; l++)
            mp_placement_copy(&trainer->next[l], &trainer->home[l]);
        code = trainer->system->after_step(trainer->self, trainer->iteration, trainer->load,
                                           trainer->home, &change, error);
        if (!code && trainer->check_plans)
            code = mp_rehome_check(trainer->home, &change, trainer->job.layers, trainer->optimizer,
                                   trainer->slots, error);
        mp_trainer_spent(trainer, mark, MP_PHASE_PLAN, MP_NO_DIRECTION, -1, -1, -1);
    }
    if (!code && change.changed)
        code = rehome(trainer, &change, error);
    if (!code && mp_optimizer_sliced(trainer->optimizer) &&
        trainer->gather_stage == MP_STAGE_AFTER_STEP)
        code = mp_trainer_gather_homes(trainer, error);
    return code;
}

/* Loss over all ranks; as every rank waits for all here, iterations begin together. */
static int agree(struct mp_trainer *trainer, struct mp_trainer_result *result,
                 struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_WAIT);
    double sums[3] = {mp_model_loss_sum(&trainer->model, trainer->host_loss), 0, trainer->stop};
    for (int l = 0; l < trainer->job.layers; l++)
        sums[1] += trainer->auxiliary_loss[l];
    int code = mp_comm_sum(trainer->comm, sums, 3, error);
    *result = (struct mp_trainer_result){
        trainer->iteration, sums[0] / (double)trainer->global_tokens, sums[1], sums[2] > 0};
    mp_trainer_spent(trainer, mark, MP_PHASE_WAIT, MP_NO_DIRECTION, -1, -1, -1);
    return code;
}

static void record_iteration(struct mp_trainer *trainer, struct mp_mark mark, int64_t cpu_ns,
                             const struct mp_trainer_result *result) {
    mp_nvtx_pop(&(struct mp_nvtx_payload){trainer->iteration, -1, MP_NO_DIRECTION,
                                          trainer->model.tokens,
                                          trainer->comm->sent_bytes - mark.sent_bytes});
    if (!trainer->compute)
        return;
    struct mp_span span = {
        .start_ns = mark.start_ns,
        .wait_ns = trainer->comm->waited_ns - mark.waited_ns,
        /* What the host's thread gets says nothing of a GPU's work. */
        .cpu_ns = trainer->device->deferred
                      ? -1
                      : mp_clock_thread_cpu_ns() - trainer->pause.cpu_ns - cpu_ns,
        .end_ns = trainer->paused_ns ? mp_trainer_now(trainer) : 0,
        .tokens = trainer->model.tokens,
        .bytes = trainer->comm->sent_bytes - mark.sent_bytes,
        .flops = -1,
        .iteration = (int32_t)trainer->iteration,
        .layer = -1,
        .phase = MP_PHASE_ITERATION,
        .direction = MP_NO_DIRECTION,
    };
    if (trainer->stamps)
        mp_stamps_flush(trainer->stamps);
    mp_record_span(trainer->compute, &span);
    if (trainer->comm->rank == 0) {
        mp_record_number(trainer->compute, trainer->iteration, -1, "loss", result->loss);
        mp_record_number(trainer->compute, trainer->iteration, -1, "auxiliary-loss",
                         result->auxiliary_loss);
    }
    mp_trainer_record_plans(trainer);
}

static int64_t cpu_time(const struct mp_trainer *trainer) {
    return trainer->compute ? mp_clock_thread_cpu_ns() - trainer->pause.cpu_ns : 0;
}

/* From `mark`, the iteration's start, on; cpu_ns: what cpu_time said there. */
static int iterate(struct mp_trainer *trainer, struct mp_mark mark, int64_t cpu_ns,
                   const int32_t *token, const int32_t *target, struct mp_trainer_result *result,
                   struct mp_error *error) {
    int code = mp_trainer_forward(trainer, token, target, error);
    if (!code)
        code = backward(trainer, error);
    if (!code) {
        update(trainer);
        code = after_step(trainer, error);
    }
    if (!code)
        code = agree(trainer, result, error);
    if (!code)
        code = mp_device_check(trainer->device, error);
    if (!code && trainer->progress_error.code) {
        *error = trainer->progress_error;
        code = error->code;
    }
    if (code)
        return code;
    record_iteration(trainer, mark, cpu_ns, result);
    trainer->iteration++;
    return MP_OK;
}

int mp_trainer_step_on(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_trainer_result *result, struct mp_error *error) {
    return iterate(trainer, mp_trainer_mark(trainer, MP_PHASE_ITERATION), cpu_time(trainer), token,
                   target, result, error);
}

int mp_trainer_step(struct mp_trainer *trainer, struct mp_trainer_result *result,
                    struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_ITERATION);
    int64_t cpu_ns = cpu_time(trainer);
    struct mp_mark before_data = mp_trainer_mark(trainer, MP_PHASE_DATA);
    const struct mp_job *job = &trainer->job;
    for (int b = 0; b < trainer->sequences; b++)
        mp_text_training(trainer->text, (uint64_t)job->seed, trainer->iteration,
                         trainer->comm->rank * trainer->sequences + b, job->sequence,
                         trainer->token + b * job->sequence, trainer->target + b * job->sequence);
    mp_trainer_spent(trainer, before_data, MP_PHASE_DATA, MP_NO_DIRECTION, -1,
                     trainer->model.tokens, -1);
    return iterate(trainer, mark, cpu_ns, trainer->token, trainer->target, result, error);
}

int mp_trainer_validate(struct mp_trainer *trainer, double *loss, struct mp_error *error) {
    struct mp_record_thread *compute = trainer->compute, *communication = trainer->communication;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_VALIDATE);
    const struct mp_job *job = &trainer->job;
    int batches = job->validation_batches, code = MP_OK;
    double sum = 0;
    trainer->compute = trainer->communication = NULL; /* one span for all of it, */
    trainer->validating = true;
    trainer->iteration--; /* part of the iteration just done */
    for (int i = 0; !code && i < batches; i++) {
        for (int b = 0; b < trainer->sequences; b++) {
            int index = (i * trainer->comm->ranks + trainer->comm->rank) * trainer->sequences + b;
            mp_text_validation(trainer->text, index, batches * job->batch, job->sequence,
                               trainer->token + b * job->sequence,
                               trainer->target + b * job->sequence);
        }
        code = mp_trainer_forward(trainer, trainer->token, trainer->target, error);
        if (code)
            break;
        mp_model_head(&trainer->model, 0, false);
        sum += mp_model_loss_sum(&trainer->model, trainer->host_loss);
    }
    if (!code)
        code = mp_comm_sum(trainer->comm, &sum, 1, error);
    trainer->compute = compute;
    trainer->communication = communication;
    trainer->validating = false;
    *loss = sum / ((double)trainer->global_tokens * batches);
    mp_trainer_spent(trainer, mark, MP_PHASE_VALIDATE, MP_NO_DIRECTION, -1,
                     (int64_t)trainer->model.tokens * batches, -1);
    if (trainer->stamps)
        mp_stamps_flush(trainer->stamps);
    trainer->iteration++;
    return code ? code : mp_device_check(trainer->device, error);
}
