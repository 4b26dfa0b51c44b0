/* Processes: those of a recorded program, by the spools that they left in a folder, with their
 * ranks, their hosts and how their clocks lie beside one another. */
#pragma once

#include "harness/record/clocks.h"
#include "harness/record/mapping.h"
#include "harness/record/run.h"

enum { RECORD_PATH_SIZE = 4096 };

struct record_process {
    char path[RECORD_PATH_SIZE], mapped[RECORD_PATH_SIZE];
    struct mp_mapping *mapping;
    const struct mp_mapping_totals *totals;
    int part; /* of a recording in parts, as its file's name says (parts.h); else 0 */
    int rank; /* -1: none yet */
    int host; /* from 0, the lowest rank's */
    /* What clocks.h found of its host: offsets from the first host's clock.  Without samples it is
     * that one's, or nobody knows. */
    struct clock_sample sample[CLOCK_WINDOWS];
    int samples;
    int64_t realtime_ns; /* when it began, on the first host's wall clock if there are samples */
};

struct record_processes {
    struct record_process *item; /* [count] */
    int count;
    bool keep_spools, proposed; /* rules are proposed for them */
    bool without_ranges;        /* known by what collectors of GPU work left of them only */
};

/* Maps all spools of the run's folder; where there are none, the processes of collectors of GPU
 * work.  What has no header is left out, which is said on `stream`.  Errors: MP_ENOTFOUND (nobody
 * recorded: the sentence says why that may be), MP_EIO, MP_ENOMEM.  Free it in any case. */
int record_processes_find(const struct mp_record_run *run, struct record_processes *processes,
                          FILE *stream, struct mp_error *error);
void record_processes_free(struct record_processes *processes);
MP_END(processes, struct record_processes, record_processes_free(it))

/* MP_EINVAL: one of an earlier recording's still records, as far as that can be seen here. */
int record_processes_check_ended(const struct record_processes *processes, struct mp_error *error);

/* Whether parts of a recording are those of one run: MP_EINVAL where a recording or a rank is in
 * two of them, where their launchers gave them different runs or numbers of ranks, and, unless
 * `some_ranks`, where ranks are missing. */
int record_processes_check_parts(const struct record_processes *processes, bool some_ranks,
                                 struct mp_error *error);

/* Whether a spool of a part is this process's. */
bool record_process_is(const struct record_process *process, const struct mp_spool_header *header,
                       int part);

/* Those with spans first, then in the order in which they began. */
void record_processes_sort(struct record_processes *processes);

/* Gives each of some processes its rank and host; returns how many ranks there are. */
int record_processes_rank(const struct mp_record_run *run, struct record_process process[],
                          int count, int *hosts);

/* Meetings: what the hosts of a recorded program did together, and where their clocks lie by it.
 *
 * Meetings are NCCL's collectives, by communicator and number (spools of profiler/nccl), or ranges
 * of one rule with `waits: all`, counted in each iteration.  Kinds of ranges may be of groups that
 * lie within hosts: each kind is tried by itself, and that counts which puts most hosts beside the
 * first, of these the one with the smallest error.  Of a host's processes, which have one clock,
 * the one that came last to a meeting stands for it. */

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
