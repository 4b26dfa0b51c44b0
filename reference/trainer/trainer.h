/* The trainer: carries plans out for real, one iteration at a time.
 *
 * An iteration is a step of training or, if the job's mode says so, of serving: forward only, with
 * a cache of keys and values.  Each step of serving begins behind the same cached tokens
 * (mp_trainer_fill), as steps in the midst of a run of continuous batching do on average: so that
 * steps can be compared.  What it caches itself is overwritten by the next.
 *
 * One trainer per rank.  Its system plans; the trainer moves experts and tokens as the plans say,
 * computes, sums gradients and updates.  A system that drops nothing gives the loss curve of one
 * rank, for every number of ranks.  Nothing is allocated, formatted or read from files inside an
 * iteration, but memory for rows where a layer has more of them than it ever had (rows.h); spans
 * and loads go to the recorder's buffers. */
#pragma once

#include "profiler/record/record.h"
#include "reference/comm/comm.h"
#include "reference/model/block.h"
#include "reference/trainer/batch.h"
#include "reference/trainer/job.h"

struct mp_trainer;

/* What an iteration gave, the same on every rank. */
struct mp_trainer_result {
    int64_t iteration;     /* from 0 */
    double loss;           /* mean cross-entropy over the global batch, nats per token; serving: of
                              the token behind each sequence */
    double auxiliary_loss; /* sum over layers, weighted as in the job */
    bool stop;             /* some rank has been asked to stop (mp_trainer_request_stop) */
};

/* What the system made of the run so far, validation included, for reports and tests. */
struct mp_trainer_totals {
    int64_t copies[MP_STAGES]; /* fetched or put together beside the owners, by stage */
    int64_t moves;             /* ranks that began to keep an expert they did not keep before */
    int64_t replicas;          /* tied replicas that were updated, summed over layers and steps */
    int64_t bytes[MP_STAGES];
    int64_t routes, dropped; /* of all ranks */
    int64_t row_growths;     /* layers' turns in which this rank's memory for rows had to grow */
};

/* Creates model, shards and system for this rank of `comm` (borrowed; as is `text`, which may be
 * NULL when only mp_trainer_step_on is used), on a device (borrowed) that was created with at least
 * mp_trainer_limits, as the comm has to know it; NULL: on one of its own on the CPU.  `file` is
 * borrowed during the call.  Collective.  Measures what planners assume unless the job gives it.
 * Errors: MP_EINVAL (the batch does not divide over the ranks), MP_EREFUSED (by the system),
 * MP_ELIMIT (more routes than an int counts), MP_ENOMEM, MP_ECOMM.  After an error on one rank
 * others may be waiting for it: mp_comm_abort. */
int mp_trainer_create(const struct mp_job_file *file, struct mp_comm *comm,
                      struct mp_device *device, const struct mp_text *text,
                      struct mp_trainer **trainer, struct mp_error *error);
void mp_trainer_limits(const struct mp_job *job, struct mp_device_limits *limits);
void mp_trainer_destroy(struct mp_trainer *trainer); /* accepts NULL */

/* Spans of later iterations go to `compute` and those in flight to `communication` (borrowed;
 * NULL: recording off).  From the first call on, an NVTX tool that listens is told of them too,
 * whatever is recorded (profiler/nvtx/emit.h). */
void mp_trainer_record(struct mp_trainer *trainer, struct mp_record_thread *compute,
                       struct mp_record_thread *communication);

/* Records what a run's figures depend on: the compute back end, what a span costs this rank
 * (mp_spans_cost), and on rank 0 the figures that planners assume and the model's sizes.  Between
 * steps.  Errors: MP_ENOMEM. */
int mp_trainer_describe(struct mp_trainer *trainer, struct mp_record_thread *thread,
                        struct mp_error *error);

/* Serving: puts the job's context into the cache, that of the first iteration's texts, or given
 * tokens (host, [batch / ranks][context] of this rank); by the steps' own forward, on as many
 * tokens at a time, of which the system learns nothing.  Before mp_trainer_record and the first
 * step, after a restore; nothing without a context.  Collective; errors as of a step. */
int mp_trainer_fill(struct mp_trainer *trainer, struct mp_error *error);
int mp_trainer_fill_on(struct mp_trainer *trainer, const int32_t *token, struct mp_error *error);

/* One iteration on the next batch of the text, or on given tokens and targets (host, [batch / ranks
 * * sequence] of this rank; in serving [batch / ranks * tokens of a step] and the [batch / ranks]
 * that follow them).  Collective.
 * Errors: MP_EPLAN (a plan breaks the law), MP_ELIMIT (a plan needs more memory than the system
 * announced), MP_ENOMEM (none for the rows that a plan brings), MP_ECOMM, MP_EDEVICE.  They may be
 * this rank's alone, and nothing can be trained any more: mp_comm_abort. */
int mp_trainer_step(struct mp_trainer *trainer, struct mp_trainer_result *result,
                    struct mp_error *error);
int mp_trainer_step_on(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_trainer_result *result, struct mp_error *error);

/* Makes the next step's result say `stop` on every rank.  Any thread may ask. */
void mp_trainer_request_stop(struct mp_trainer *trainer);

/* Mean loss over validation batches, parameters unchanged, nats per token.  The system plans for
 * them too, but does not see them in after_step.  Collective; errors as of a step. */
int mp_trainer_validate(struct mp_trainer *trainer, double *loss, struct mp_error *error);

/* Iteration that the next step will be. */
int64_t mp_trainer_iteration(const struct mp_trainer *trainer);
const struct mp_trainer_totals *mp_trainer_totals(const struct mp_trainer *trainer);
/* The model with its parameters and gradients, for tests and tools. */
struct mp_model *mp_trainer_model(struct mp_trainer *trainer);

/* Checkpoint into / from a folder (checkpoint.h has the format and the errors).  Collective; if one
 * rank fails all do, and after a failed restore the trainer can only be destroyed.  Experts that
 * are to move with the next iteration move before they are saved. */
int mp_trainer_save(struct mp_trainer *trainer, const char *folder, struct mp_error *error);
int mp_trainer_restore(struct mp_trainer *trainer, const char *folder, struct mp_error *error);
