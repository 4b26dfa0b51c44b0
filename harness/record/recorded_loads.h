/* Loads beside a recording: how many routes every rank's tokens sent to every expert, from a file
 * that something else wrote (a hook in the gate, Megatron-LM's router tracer, a table), put into
 * the recorded run by rank, iteration and layer.  Experts have names then, and what-if has loads.
 *
 * Iterations have the numbers that the recording's have: counted from 0 where ranges don't say
 * theirs. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "reference/base/error.h"

/* The hook for gates of PyTorch that counts them, a program of Python (profiler/experts). */
#define MP_RECORD_HOOK "moeperf_experts.py"
extern const char mp_record_hook[];

/* Where they are; all NULL and 0: in the folder of the recording, if there are tables in it
 * (profiler/experts). */
struct mp_record_loads_source {
    const char *path; /* a file or folder of harness/workload/formats.h, or an .mptrace; borrowed */
    const char *kind; /* NULL: as the name says */
    int experts;      /* of a layer, for kinds that don't say; 0 for the others */
};

/* Micro-batches are added up. */
struct mp_record_loads {
    int ranks, experts, layers;
    int iterations;
    int64_t *iteration; /* [iterations] ascending */
    uint32_t *routes;   /* [iterations][layers][ranks][experts] */
};

/* Reads the iterations from `first` to `last`.  A source that is damaged or cut gives what is whole
 * in front of that, which is said on `stream`.  Errors: those of mp_format_open and
 * mp_trace_open; MP_EINVAL for a source of another number of ranks, which its sentence explains, or
 * without any of these iterations; MP_ELIMIT (more than 4 GiB), MP_ENOMEM. */
int mp_record_loads_read(const struct mp_record_loads_source *source, int ranks, int64_t first,
                         int64_t last, FILE *stream, struct mp_record_loads *loads,
                         struct mp_error *error);
void mp_record_loads_destroy(struct mp_record_loads *loads); /* accepts a zeroed one */
MP_END(record_loads, struct mp_record_loads, mp_record_loads_destroy(it))

/* [experts] of the index of an iteration. */
const uint32_t *mp_record_loads_of(const struct mp_record_loads *loads, int iteration, int layer,
                                   int rank);
