/* Meetings: what the hosts of a recorded program did together, and where their clocks lie by it.
 *
 * Meetings are NCCL's collectives, by communicator and number (spools of profiler/nccl), or ranges
 * of one rule with `waits: all`, counted in each iteration.  Kinds of ranges may be of groups that
 * lie within hosts: each kind is tried by itself, and that counts which puts most hosts beside the
 * first, of these the one with the smallest error.  Of a host's processes, which have one clock,
 * the one that came last to a meeting stands for it. */
#ifndef MOEPERF_HARNESS_RECORD_MEETINGS_H
#define MOEPERF_HARNESS_RECORD_MEETINGS_H

#include "harness/record/processes.h"

struct meetings_found {
    int hosts;
    int apart;                     /* of them, that were not put beside the first by a meeting */
    struct meeting_summary clocks; /* of hosts; offsets between monotonic clocks say nothing */
    int64_t wall_apart_ns;         /* how far aligned hosts' wall clocks are from the first's */
    char kind[64];                 /* the ranges that said so; "": collectives of NCCL */
};

/* Fills in the clocks of processes in the order of their ranks.  MP_ENOMEM; MP_EIO. */
int record_meetings_align(const struct mp_record_run *run, struct record_process process[],
                          int count, int hosts, struct meetings_found *found,
                          struct mp_error *error);

#endif
