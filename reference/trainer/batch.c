#include "reference/trainer/batch.h"

#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "reference/base/random.h"

/* ---- text ---- */

enum { BATCH_STREAM = 1 }; /* random stream of batch positions; tensors have their own seeds */

/* Puts a file behind what is there. */
static int append_file(struct mp_text *text, FILE *all, const char *path, struct mp_error *error) {
    char part[1 << 16];
    size_t got, size = 0;
    MP_AUTO(file) FILE *file = fopen(path, "rb");
    if (!file)
        return mp_fail_errno(error, "text %s", path);
    while ((got = fread(part, 1, sizeof part, file)) > 0 && fwrite(part, 1, got, all) == got)
        size += got;
    text->files += size > 0;
    return ferror(file) ? mp_fail_errno(error, "text %s", path) : MP_OK;
}

/* A byte of an entry's path from its name on: behind a folder's name a '/' follows. */
static int path_byte(const FTSENT *entry, size_t at) {
    if (at < entry->fts_namelen)
        return (unsigned char)entry->fts_name[at];
    return at == entry->fts_namelen && entry->fts_info == FTS_D ? '/' : 0;
}

/* The order of the paths of all files below both. */
static int by_path(const FTSENT **a, const FTSENT **b) {
    size_t at = 0;
    while (path_byte(*a, at) == path_byte(*b, at) && path_byte(*a, at))
        at++;
    return path_byte(*a, at) - path_byte(*b, at);
}

static int append_tree(struct mp_text *text, FILE *all, char *path, struct mp_error *error) {
    char *paths[] = {path, NULL};
    FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, by_path);
    if (!tree)
        return mp_fail_errno(error, "text %s", path);
    int code = MP_OK;
    FTSENT *entry;
    errno = 0;
    while (!code && (entry = fts_read(tree))) {
        if (entry->fts_info == FTS_F)
            code = append_file(text, all, entry->fts_path, error);
        else if (entry->fts_info == FTS_NS || entry->fts_info == FTS_ERR ||
                 entry->fts_info == FTS_DNR)
            code = mp_fail(error, entry->fts_errno == ENOENT ? MP_ENOTFOUND : MP_EIO, "text %s: %s",
                           entry->fts_path, strerror(entry->fts_errno));
    }
    fts_close(tree);
    return code;
}

static void digest(struct mp_text *text) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text->byte, text->size));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(text->digest + 2 * i, 3, "%02x", canonical.digest[i]);
}

static int split(struct mp_text *text, const char *paths, double validation_share,
                 size_t least_training, size_t least_validation, struct mp_error *error) {
    if (text->size == 0)
        return mp_fail(error, MP_EINVAL, "text %s: there is not one byte in it", paths);
    size_t validation = (size_t)((double)text->size * validation_share);
    text->training = text->size - validation;
    if (text->training < least_training)
        return mp_fail(error, MP_EINVAL,
                       "text %s: %zu bytes for training, but one batch needs %zu (batch x "
                       "(sequence + 1)); give more text, or a smaller batch or sequence",
                       paths, text->training, least_training);
    if (validation < least_validation)
        return mp_fail(error, MP_EINVAL,
                       "text %s: %zu bytes for validation, but one sequence needs %zu; give more "
                       "text or a larger validation-share, or set validate-every to 0",
                       paths, validation, least_validation);
    return MP_OK;
}

int mp_text_load(const char *paths, double validation_share, size_t least_training,
                 size_t least_validation, struct mp_text *text, struct mp_error *error) {
    *text = (struct mp_text){0};
    char *list = strdup(paths), *rest = list, *path;
    FILE *all = list ? open_memstream((char **)&text->byte, &text->size) : NULL;
    int code = all ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the list of texts");
    while (!code && (path = strsep(&rest, ":")))
        if (*path)
            code = append_tree(text, all, path, error);
    bool is_full = all && ferror(all);
    if (all && (fclose(all) || is_full) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for the text behind %zu bytes", text->size);
    free(list);
    if (!code)
        code = split(text, paths, validation_share, least_training, least_validation, error);
    if (!code)
        digest(text);
    else
        mp_text_destroy(text);
    return code;
}

void mp_text_destroy(struct mp_text *text) {
    if (!text)
        return;
    free(text->byte);
    *text = (struct mp_text){0};
}

static void take(const unsigned char *from, int count, int32_t *token, int32_t *target) {
    for (int i = 0; i < count; i++)
        token[i] = from[i];
    for (int i = 0; target && i < count; i++)
        target[i] = from[i + 1];
}

void mp_text_part(const struct mp_text *text, uint64_t seed, int64_t iteration, int index,
                  int sequence, int first, int count, int32_t *token, int32_t *target) {
    uint64_t counter = ((uint64_t)iteration << 24) + (uint64_t)index;
    size_t starts = text->training - (size_t)sequence;
    size_t start = mp_random_below(seed ^ UINT64_C(0x74657874), BATCH_STREAM, counter, starts);
    take(text->byte + start + first, count, token, target);
}

void mp_text_validation(const struct mp_text *text, int index, int count, int sequence,
                        int32_t *token, int32_t *target) {
    size_t starts = text->size - text->training - (size_t)sequence;
    size_t start = (size_t)((unsigned __int128)starts * (unsigned)index / (unsigned)count);
    take(text->byte + text->training + start, sequence, token, target);
}

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
