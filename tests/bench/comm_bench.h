/* What comm_bench.c shares with overlap_bench.c: chunks of experts that travel to all ranks, and
 * their gradients back. */
#pragma once

#include <stdbool.h>

#include "reference/base/arena.h"
#include "reference/comm/comm.h"
#include "tests/bench/bench.h"

struct bench_chunks {
    struct mp_comm *comm;
    int experts;
    size_t bytes;
    float **chunk; /* [experts], all pages touched with values of this rank */
    struct mp_transfers fetch, reduce;
    struct mp_request *request;
    struct mp_arena arena; /* for whatever else there is */
};

/* The transport, which needs two ranks or more, and memory for everything.  `chunks` has experts
 * and bytes; `bench` is for the sentence. */
int bench_chunks_create(struct bench_chunks *chunks, const char *bench, struct mp_device *device,
                        struct mp_error *error);
void bench_chunks_destroy(struct bench_chunks *chunks); /* accepts a zeroed one */

/* Who owns them: dealt out over the ranks, as a sharded model has them, or all on rank 0. */
int bench_chunks_owner(const struct bench_chunks *chunks, bool dealt_out, int expert);
int bench_chunks_list(struct bench_chunks *chunks, bool dealt_out, struct mp_error *error);
/* spAG or spRS of the list; chunks->request is to be waited for. */
int bench_chunks_start(struct bench_chunks *chunks, bool reduces, struct mp_error *error);

/* On rank 0 the setting, and under `name` the table. */
int bench_chunks_report(const struct bench_chunks *chunks, const char *name, json_t *table,
                        json_t *result, struct mp_error *error);
