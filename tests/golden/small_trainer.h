/* A one-rank trainer of a small model, for tests that look into it. */
#pragma once

#include "reference/trainer/internal.h"
#include "tests/reference/trainer/settings.h"

struct small_trainer {
    struct mp_device *device; /* of device=cuda; NULL: the trainer's own */
    struct mp_comm *comm;
    struct mp_job_file file;
    struct mp_trainer *trainer;
};

static inline void small_trainer_create_device(struct small_trainer *small,
                                               struct mp_error *error) {
    const struct mp_job *job = &small->file.job;
    struct mp_device_limits limits;
    const struct mp_cuda_settings settings = {
        .rank = -1,
        .element = job->precision == MP_PRECISION_BF16 ? MP_BFLOAT16 : MP_FLOAT32,
        .grouped_products = (enum mp_grouped_products)job->grouped_products,
    };
    if (job->device != MP_DEVICE_CUDA || error->code)
        return;
    mp_trainer_limits(job, &limits);
    mp_device_cuda_create(&settings, &limits, &small->device, error);
}

/* `settings` besides one rank, EP and given planner figures. */
static inline void small_trainer_create(struct small_trainer *small, const char *settings) {
    char all[2 * MOST_SETTINGS];
    struct mp_error error = {0};
    *small = (struct small_trainer){0};
    snprintf(all, sizeof all,
             "ranks=1 system=ep text=- expert-rate=1e9 bandwidth=1e9 check-plans=yes "
             "non-moe-seconds=1e-4 %s",
             settings);
    create_job(&small->file, all, NULL, &error);
    small_trainer_create_device(small, &error);
    mp_comm_self_create_on(small->device, &small->comm, &error);
    if (!error.code)
        mp_trainer_create(&small->file, small->comm, small->device, NULL, &small->trainer, &error);
    if (error.code)
        fail_msg("%s", error.text);
}

static inline void small_trainer_destroy(struct small_trainer *small) {
    mp_trainer_destroy(small->trainer);
    mp_job_file_destroy(&small->file);
    mp_comm_destroy(small->comm);
    mp_device_destroy(small->device);
}

TEST_END(small_trainer, struct small_trainer, small_trainer_destroy(it))

/* Where an expert's matrices are: which 0 parameters, 1 gradients. */
static inline float *small_trainer_expert(struct small_trainer *small, int which, int layer,
                                          int expert) {
    struct mp_experts *experts = &mp_trainer_model(small->trainer)->experts;
    int slot = experts->slot[layer * experts->experts + expert];
    float *memory = which ? experts->gradient : experts->parameter;
    return memory + (size_t)slot * experts->chunk;
}
