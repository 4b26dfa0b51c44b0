/* Checkpoints: a folder that any number of ranks and any system can start from.
 *
 *   checkpoint.yaml    what it is: format, iteration, updates, model shape, seed, system
 *                      with its options, ranks, and whether experts are kept whole or in slices
 *   dense.bin          non-expert parameters and both moments, written by rank 0
 *   experts-RRRR.bin   the shard of rank R: which (layer, expert) it owns, then for each of them
 *                      parameters, first and second moment; with a sliced optimizer the rank's
 *                      slices, of equal length, an expert's in ascending order of ranks, the last
 *                      one filled up with zeros
 *   homes.bin          who keeps what: per layer the owners, then 64-bit words of holders
 *   system.bin         the system's own state (windows), if it has any
 *
 * The last two have one entry, whose first buffer holds bytes and whose "layer" is their number.
 *
 * Binary files are little-endian: magic "mpckpt01", u32 entries, u32 floats per entry and buffer,
 * the (i32 layer, i32 expert) of every entry, the floats (parameter, first, second per entry), and
 * a u32 CRC-32 of everything before it.  A checkpoint is written beside its place (FOLDER.partial)
 * and changes places with the previous one, so that a kill at any moment leaves one of them whole
 * (for a moment as FOLDER.old where the file system can't exchange two folders).  While it is
 * written FOLDER.partial is locked: a second run that would write there fails.  If FOLDER is a
 * link, all of this happens to the folder behind it and the link stays.
 *
 * Restoring under the same system, options and ranks gives every rank what it had; otherwise homes
 * are the system's initial ones, and the system's state is taken over only if system and options
 * are the same: slots of another number, or windows of another length, would mean nothing.  Whole
 * experts may be restored into slices and the other way round.  A job that serves takes parameters
 * and homes alone, of a model with as many positions as it needs or more, and counts its steps from
 * 0. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "reference/base/whole_file.h"

/* Whether a checkpoint can be written here: MP_EINVAL when `folder` is a file, a link to nothing or
 * holds something else than a checkpoint, MP_EIO when the folder above it is not there or
 * read-only.  Saving checks
 * it too; a run asks at its start, since at its end it is too late. */
int mp_checkpoint_check(const char *folder, struct mp_error *error);

/* One binary file being written: begin, one append per buffer, end.  Errors: MP_EIO, MP_ENOSPACE,
 * naming the path. */
struct mp_shard_writer {
    struct mp_whole_file file;
    size_t floats; /* of a buffer */
    uint32_t check;
};
int mp_shard_create(const char *path, int entries, const int32_t *layer_expert, uint32_t floats,
                    struct mp_shard_writer *writer, struct mp_error *error);
int mp_shard_append(struct mp_shard_writer *writer, const float *buffer, struct mp_error *error);
/* After all of them, or the first that failed, with `code`: writes the checksum, syncs and closes;
 * or removes the file.  Returns `code`, or what went wrong here. */
int mp_shard_finish(struct mp_shard_writer *writer, int code, struct mp_error *error);

/* One binary file read back: its checksum is verified before anything is handed out.  Errors:
 * MP_ENOTFOUND, MP_EIO, MP_EFORMAT (not such a file, cut off, damaged); mp_shard_close in any case.
 */
struct mp_shard {
    int entries;
    uint32_t floats;       /* per entry and buffer */
    int32_t *layer_expert; /* [entries][2] */
    float *memory;         /* [entries][3][floats], owned */
    void *file;            /* private */
};
int mp_shard_open(const char *path, struct mp_shard *shard, struct mp_error *error);
void mp_shard_close(struct mp_shard *shard); /* accepts a zeroed one */
MP_END(shard, struct mp_shard, mp_shard_close(it))
