/* What the trainer says to any NVTX tool that listens: its own spans of the stream "compute" as
 * pushed ranges in the domain "moeperf", named like their phases (registered strings), with a
 * payload at the end of each.
 *
 * When no tool listens (NVTX_INJECTION64_PATH is not set) each call is a test of one variable.  A
 * build without NVTX's headers never emits. */
#ifndef MOEPERF_PROFILER_NVTX_EMIT_H
#define MOEPERF_PROFILER_NVTX_EMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "profiler/record/record.h"

/* A range's payload, under the schema "moeperf span".  -1: does not apply or not known. */
struct mp_nvtx_payload {
    int64_t iteration, layer;
    int64_t direction; /* enum mp_direction */
    int64_t tokens, bytes;
};

extern bool mp_nvtx_listening; /* for the functions below */

/* Finds out whether a tool listens, and tells it names and schema; again: does nothing.  One thread
 * calls it, before the others emit. */
void mp_nvtx_start(void);

/* Version of the headers that the build found, e.g. 3; 0: none, nothing is ever emitted. */
int mp_nvtx_headers(void);

void mp_nvtx_push_range(enum mp_phase phase);
void mp_nvtx_pop_range(const struct mp_nvtx_payload *payload);

/* Ranges of a thread nest: what was pushed last is popped first. */
static inline void mp_nvtx_push(enum mp_phase phase) {
    if (mp_nvtx_listening)
        mp_nvtx_push_range(phase);
}

static inline void mp_nvtx_pop(const struct mp_nvtx_payload *payload) {
    if (mp_nvtx_listening)
        mp_nvtx_pop_range(payload);
}

#endif
