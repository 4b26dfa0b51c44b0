/* What the trainer says to any NVTX tool that listens, in the domain "moeperf": its own spans of
 * the stream "compute" as pushed ranges, named like their phases, and those of the stream "comm" as
 * ranges that are started and ended, named "comm" and the phase ("comm fetch"): operations in
 * flight lie across one another.  Names are registered strings, and each range ends with a payload.
 *
 * When no tool listens (NVTX_INJECTION64_PATH is not set) each call is a test of one variable.  A
 * build without NVTX's headers never emits. */
#pragma once

#include <stdint.h>

#include "profiler/record/record.h"

/* A range's payload, under the schema "moeperf span".  -1: does not apply or not known. */
struct mp_nvtx_payload {
    int64_t iteration, layer;
    int64_t direction; /* enum mp_direction */
    int64_t tokens, bytes;
};

/* How ranges reach the tool that listens; NULL: none does.  For the functions below. */
struct mp_nvtx_emitter {
    void (*push)(enum mp_phase phase);
    void (*pop)(const struct mp_nvtx_payload *payload);
    uint64_t (*depart)(enum mp_phase phase);
    void (*arrive)(uint64_t range, const struct mp_nvtx_payload *payload);
};
extern const struct mp_nvtx_emitter *mp_nvtx_emitter;

/* Finds out whether a tool listens, and tells it names and schema; again: does nothing.  One thread
 * calls it, before the others emit. */
void mp_nvtx_start(void);

/* Version of the headers that the build found, e.g. 3; 0: none, nothing is ever emitted. */
int mp_nvtx_headers(void);

/* Name of the ranges by which the trainer measures what one costs; they are pushed as MP_PHASES. */
#define MP_NVTX_DOMAIN "moeperf"
#define MP_NVTX_COST "cost of a span"

/* Ranges of a thread nest: what was pushed last is popped first. */
static inline void mp_nvtx_push(enum mp_phase phase) {
    if (mp_nvtx_emitter)
        mp_nvtx_emitter->push(phase);
}

static inline void mp_nvtx_pop(const struct mp_nvtx_payload *payload) {
    if (mp_nvtx_emitter)
        mp_nvtx_emitter->pop(payload);
}

/* An operation in flight: any thread may end it, in any order.  Returns its range, 0: nobody
 * listens. */
static inline uint64_t mp_nvtx_depart(enum mp_phase phase) {
    return mp_nvtx_emitter ? mp_nvtx_emitter->depart(phase) : 0;
}

/* Accepts 0. */
static inline void mp_nvtx_arrive(uint64_t range, const struct mp_nvtx_payload *payload) {
    if (range)
        mp_nvtx_emitter->arrive(range, payload);
}
