/* Batches: this rank's tokens of an iteration, of the text or given, and their targets. */
#ifndef MOEPERF_REFERENCE_TRAINER_BATCH_H
#define MOEPERF_REFERENCE_TRAINER_BATCH_H

#include "reference/base/arena.h"
#include "reference/trainer/job.h"
#include "reference/trainer/text.h"

struct mp_batch {
    const struct mp_job *job; /* borrowed, as is the text */
    const struct mp_text *text;
    int rank;
    int sequences;         /* of this rank */
    int64_t global_tokens; /* per iteration */
    int64_t answers; /* that losses are means of: as many, or in serving the batch's sequences */
    int32_t *token, *target;               /* [sequences][tokens of a step] */
    int32_t *context;                      /* [sequences][context] in the cache, if serving */
    float *loss;                           /* as many as tokens, of the host */
    const int32_t *token_now, *target_now; /* and [answers]: what is worked on */
};

/* Borrowed members are set, and the job's ranks are those that there are.  What is lacking is the
 * arena's to say. */
void mp_batch_create(struct mp_batch *batch, struct mp_arena *arena);

/* Takes up tokens and targets, borrowed until the next ones. */
void mp_batch_take(struct mp_batch *batch, const int32_t *token, const int32_t *target);

/* The batch of an iteration; in serving what follows the context in its texts, and the token behind
 * each. */
void mp_batch_read(struct mp_batch *batch, int64_t iteration);
/* Batch `number` of a validation. */
void mp_batch_read_validation(struct mp_batch *batch, int number);
/* The context of the first iteration's texts. */
void mp_batch_read_context(struct mp_batch *batch);
/* Tokens `first` and on of each sequence, as many as a step has, out of a context [sequences]
 * [context]; behind its end any. */
void mp_batch_cut(struct mp_batch *batch, const int32_t *context, int first);

#endif
