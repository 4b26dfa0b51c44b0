#include "reference/trainer/batch.h"

void mp_batch_create(struct mp_batch *batch, struct mp_arena *arena) {
    const struct mp_job *job = batch->job;
    batch->sequences = job->batch / job->ranks;
    batch->global_tokens = mp_job_tokens(job);
    batch->answers = mp_job_serves(job) ? job->batch : batch->global_tokens;
    size_t sequences = (size_t)batch->sequences;
    MP_TAKE_EACH(arena, sequences * (size_t)mp_job_step_tokens(job), batch->token, batch->target,
                 batch->loss);
    MP_TAKE(arena, batch->context, sequences * (size_t)job->context);
}

void mp_batch_take(struct mp_batch *batch, const int32_t *token, const int32_t *target) {
    batch->token_now = token;
    batch->target_now = target;
}

/* `count` tokens from `first` on of this rank's sequence `b` in an iteration. */
static void read_text(const struct mp_batch *batch, int64_t iteration, int b, int first, int count,
                      int32_t *token, int32_t *target) {
    const struct mp_job *job = batch->job;
    mp_text_part(batch->text, (uint64_t)job->seed, iteration, batch->rank * batch->sequences + b,
                 (int)mp_job_positions(job), first, count, token, target);
}

void mp_batch_read(struct mp_batch *batch, int64_t iteration) {
    const struct mp_job *job = batch->job;
    int step = mp_job_step_tokens(job);
    for (int b = 0; b < batch->sequences; b++)
        read_text(batch, iteration, b, job->context, step, batch->token + b * step,
                  batch->target + b * step);
    for (int b = 0; mp_job_serves(job) && b < batch->sequences; b++)
        batch->target[b] = batch->target[(b + 1) * step - 1];
}

void mp_batch_read_validation(struct mp_batch *batch, int number) {
    const struct mp_job *job = batch->job;
    for (int b = 0; b < batch->sequences; b++)
        mp_text_validation(batch->text, (number * job->ranks + batch->rank) * batch->sequences + b,
                           job->validation_batches * job->batch, job->sequence,
                           batch->token + b * job->sequence, batch->target + b * job->sequence);
}

void mp_batch_read_context(struct mp_batch *batch) {
    int context = batch->job->context;
    for (int b = 0; b < batch->sequences; b++)
        read_text(batch, 0, b, 0, context, batch->context + (size_t)b * (size_t)context, NULL);
}

void mp_batch_cut(struct mp_batch *batch, const int32_t *context, int first) {
    int step = mp_job_step_tokens(batch->job), count = batch->job->context;
    for (int b = 0; b < batch->sequences; b++)
        for (int i = 0; i < step; i++)
            batch->token[b * step + i] =
                first + i < count ? context[(size_t)b * (size_t)count + (size_t)(first + i)] : 0;
}
