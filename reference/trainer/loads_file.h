/* Loads files: what each source sends to each expert, iteration by iteration, for a trainer that
 * replays a trace.
 *
 * A trace (harness/workload) is made for keeping; this is made of it for one job, to be read at
 * once by every rank and needs no library but a checksum.  Little-endian:
 *   char[8] "MPLOADS2"; u32 sources, experts, layers, top-k, tokens of a source and iteration; u32
 *   counts [iterations][layers][sources][experts], of as many iterations as there are; u32 digest
 *   (a name of the trace: reports tell workloads apart by it); u32 CRC-32 of all before it.
 *
 * A row of counts sums to tokens * top_k, or to less where the job's gate does not take every
 * choice, and no count is above `tokens`: a token chooses an expert at most once.
 *
 * Iteration i of a run has the loads of the file's iteration i modulo its iterations: a run longer
 * than its trace begins it again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/plan/load.h"

struct mp_loads_shape {
    int sources; /* rows of a layer: as a rule one per rank */
    int experts, layers, top_k;
    int64_t tokens; /* of a source in an iteration */
    bool fewer;     /* the job's gate may leave choices: a row may sum to less */
};

/* Whether a layer's load can be replayed exactly.  MP_EINVAL names iteration, layer, source and
 * expert, and what would be right. */
int mp_loads_check(const struct mp_loads_shape *shape, int64_t iteration, int layer,
                   const uint32_t count[], struct mp_error *error);

/* Continues a digest, 0 at first, by the counts of one more layer. */
uint32_t mp_loads_digest(uint32_t digest, const struct mp_load *load);

/* Writes a whole file (reference/base/whole_file.h).  MP_EINVAL (a folder), MP_EIO, MP_ENOSPACE,
 * MP_ENOMEM. */
struct mp_loads_writer;
int mp_loads_writer_create(const char *path, const struct mp_loads_shape *shape,
                           struct mp_loads_writer **writer, struct mp_error *error);
/* The next layer's load, all layers of an iteration in turn: `load` has [sources][experts].
 * Also mp_loads_check's errors. */
int mp_loads_write(struct mp_loads_writer *writer, const struct mp_load *load,
                   struct mp_error *error);
/* Ends the file; with `commit` false, or after an error, removes it.  Frees the writer.  MP_EINVAL:
 * no iteration, or not all layers of the last one. */
int mp_loads_writer_finish(struct mp_loads_writer *writer, bool commit, uint32_t digest,
                           struct mp_error *error);

/* A rank's own part of a file, all iterations. */
struct mp_loads {
    int sources; /* of this rank */
    int experts, layers;
    int64_t iterations;
    uint32_t digest;
    uint32_t *count; /* [iterations][layers][sources][experts], owned */
};

/* Checks the whole file, then reads it and keeps what belongs to `rank` of `ranks`.  A file may
 * have a multiple of the job's ranks as sources: then rank r has the sources from r * q to r * q +
 * q - 1, each for one of q equal parts of its tokens, so that a token chooses the same experts on
 * any number of ranks.  `job` has the job's shape with the sources of all ranks being `ranks`.
 * Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (no loads file, cut or damaged), MP_EINVAL (made for
 * another shape, both are named), MP_ENOMEM. */
int mp_loads_read(const char *path, const struct mp_loads_shape *job, int rank,
                  struct mp_loads *loads, struct mp_error *error);
void mp_loads_destroy(struct mp_loads *loads); /* accepts a zeroed one */

/* Counts of one source of this rank. */
static inline const uint32_t *mp_loads_row(const struct mp_loads *loads, int64_t iteration,
                                           int layer, int source) {
    int64_t block = (iteration % loads->iterations) * loads->layers + layer;
    return loads->count + (block * loads->sources + source) * loads->experts;
}
