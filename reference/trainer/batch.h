/* Batches: this rank's tokens of an iteration, of the text or given, and their targets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/base/error.h"
#include "reference/trainer/job.h"

/* Text: training data as bytes, from files or folders.
 *
 * Files and folders are taken as they are listed, the files of a folder and all below it in the
 * order of their paths (byte order), and put one after another; the last part is for validation.  A
 * batch is a function of (seed, iteration, sequence) alone, so every rank count and system meets
 * the same tokens. */

struct mp_text {
    unsigned char *byte; /* [size], owned */
    size_t size;
    size_t training; /* first bytes; the others are for validation */
    int files;
    char digest[40]; /* XXH3, 128 bits, hexadecimal: what `cat FILES | xxhsum -H2` prints */
};

/* paths: files and folders separated by ':'.  Errors: MP_ENOTFOUND, MP_EIO (naming the file),
 * MP_EINVAL when no file has a byte or there are fewer training bytes than `least_training`
 * (sequence + 1 bytes of every sequence of one batch), or validation bytes than `least_validation`;
 * both numbers are in the message. */
int mp_text_load(const char *paths, double validation_share, size_t least_training,
                 size_t least_validation, struct mp_text *text, struct mp_error *error);
void mp_text_destroy(struct mp_text *text); /* accepts a zeroed one */

/* Of training sequence `index` of an iteration, which has `sequence` tokens, `count` from number
 * `first` on: token [count], and target [count] (the bytes one further), which may be NULL. */
void mp_text_part(const struct mp_text *text, uint64_t seed, int64_t iteration, int index,
                  int sequence, int first, int count, int32_t *token, int32_t *target);
/* All of validation sequence `index`: evenly spaced over the validation part. */
void mp_text_validation(const struct mp_text *text, int index, int count, int sequence,
                        int32_t *token, int32_t *target);

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
