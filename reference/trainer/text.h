/* Text: training data as bytes, from files or folders.
 *
 * Files and folders are taken as they are listed, the files of a folder and all below it in the
 * order of their paths (byte order), and put one after another; the last part is for validation.  A
 * batch is a function of (seed, iteration, sequence) alone, so every rank count and system meets
 * the same tokens. */
#ifndef MOEPERF_REFERENCE_TRAINER_TEXT_H
#define MOEPERF_REFERENCE_TRAINER_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

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

#endif
