/* Writer: a recording that another tool made, as the spools that our own collectors would have
 * left.
 *
 * A recording has one process per rank.  Each gets two files in the recording's folder: N.spool
 * with its ranges, and N.device with the GPU's activities and the collectives, where it has any.
 * Readers of files (recordings.h) say what they find in whatever order they find it.
 *
 * Times are nanoseconds of one clock per process, the host's and the GPU's work on the same one:
 * CLOCK_MONOTONIC, or time since 1970, or whatever the tool counted.  mp_recording_finish puts the
 * processes' clocks beside one another by the collectives that they ended together. */
#pragma once

#include <stdint.h>

#include "harness/record/clocks.h"
#include "profiler/record/spool.h"
#include "reference/base/error.h"

struct mp_recording;
struct mp_recording_process; /* belongs to its recording */

/* Who a process was.  Texts are copied. */
struct mp_recorded_process {
    int rank;                    /* in the job, from 0 */
    int ranks;                   /* of the job; 0: not known, as many as there are */
    int node;                    /* 0 where it isn't known */
    int pid;                     /* the system's; 0: not known */
    const char *host;            /* NULL: not known */
    const char *source;          /* the file that says it, for messages */
    int64_t wall_minus_clock_ns; /* what added to its times makes them those since 1970; 0 where
                                    they are that, or nobody knows */
};

/* A range of a thread, or a mark where end_ns is start_ns and kind says so. */
struct mp_recorded_range {
    int64_t start_ns, end_ns; /* end 0: still open at the end */
    const char *name;
    const char *domain;   /* NULL: the default one */
    uint32_t thread;      /* any number that tells threads of the process apart */
    uint32_t category;    /* of its domain; 0: none */
    uint16_t level;       /* ranges around it, where that is known */
    uint8_t kind;         /* enum mp_range_kind */
    uint8_t value_type;   /* enum mp_value_type, of `value` */
    uint64_t value;       /* bits; of an echo, the start_ns of the range that it echoes */
    uint16_t traits;      /* bits of enum mp_range_trait */
    uint64_t schema;      /* of mp_recording_fields; 0: it has no fields */
    const int64_t *field; /* as many as the schema has */
};

/* Creates the folder's files.  `collector` names the source in v_gpu's notes: "pytorch", "nsys", at
 * most 40 bytes.  The folder has to be there, and empty.  Errors: MP_ENOMEM. */
int mp_recording_create(const char *folder, const char *collector, struct mp_recording **recording,
                        struct mp_error *error);

/* Removes the files where they still are.  Accepts NULL. */
void mp_recording_destroy(struct mp_recording *recording);
MP_END(recording, struct mp_recording *, mp_recording_destroy(*it))

/* A process to say the following about.  Errors: MP_EINVAL (its rank was there before, in a file
 * that is named, or is not 0 .. 65535), MP_EIO, MP_ENOSPACE, MP_ENOMEM. */
int mp_recording_process(struct mp_recording *recording, const struct mp_recorded_process *about,
                         struct mp_recording_process **process, struct mp_error *error);

/* What payloads of a domain's ranges (NULL: the default one) hold: `fields` whole numbers by name.
 * *schema: for mp_recorded_range.  1 to 32 fields, at most 64 schemas.  Errors: as below. */
int mp_recording_fields(struct mp_recording_process *process, const char *domain,
                        const char *const name[], int fields, uint64_t *schema,
                        struct mp_error *error);

/* The following return MP_EIO, MP_ENOSPACE or MP_ENOMEM, with the path of what can't be written. */

int mp_recording_range(struct mp_recording_process *process, const struct mp_recorded_range *range,
                       struct mp_error *error);

/* The smallest rank that no process has. */
int mp_recording_free_rank(const struct mp_recording *recording);

/* What a thread (MP_NAME_THREAD) is called, or a category (MP_NAME_CATEGORY) of a domain (NULL: the
 * default one). */
int mp_recording_name(struct mp_recording_process *process, enum mp_name_kind kind,
                      const char *domain, uint32_t number, const char *name,
                      struct mp_error *error);

/* GPU work or a call (activity.h); `name` instead of activity->name, NULL: none.  A link's value is
 * the start_ns of the range to which what has its correlation id belongs. */
int mp_recording_activity(struct mp_recording_process *process, const struct mp_activity *activity,
                          const char *name, struct mp_error *error);

/* A collective, send or receive.  timer_start and timer_end are when it ran, on the process's own
 * clock, whatever ran it; both 0: not known.  sequence 0: it is counted, in the order of start_ns,
 * among those of its communicator and function, unless the recording is cut.  group 0, ranks 0: not
 * known.  The texts take the place of the numbers of names; NULL: not known. */
struct mp_recorded_collective {
    struct mp_collective is;
    const char *function; /* "AllReduce", "AllToAll", ...: the same on all its ranks */
    const char *datatype; /* NCCL's words, "ncclFloat32": v_collective has bytes then */
};
int mp_recording_collective(struct mp_recording_process *process,
                            const struct mp_recorded_collective *collective,
                            struct mp_error *error);

/* A communicator's number, the same on all its ranks: of its name and of who is in it, as a text
 * (NULL: not known).  Never 0. */
uint64_t mp_recording_communicator(const char *name, const char *members);

/* A text about the process (table fact). */
int mp_recording_text(struct mp_recording_process *process, const char *name, const char *value,
                      struct mp_error *error);

/* The recording ends before the process did: its file is cut or damaged, which `sentence` says.  It
 * comes into v_rank.reason and the summary.  Several: the first counts. */
void mp_recording_cut(struct mp_recording_process *process, const char *sentence);

/* Something to know about what was read; nothing is missing.  It comes to the same places; several
 * are put one behind the other. */
void mp_recording_note(struct mp_recording_process *process, const char *sentence);

/* What finishing found out. */
struct mp_recording_summary {
    int processes;
    int64_t ranges, activities, collectives;
    const char *cut; /* what mp_recording_cut says of a process, the recording's; NULL: of none */
    struct meeting_summary clocks; /* of the processes */
};

/* Counts collectives, compares clocks (clocks.h), and writes the ends: the folder is then as
 * mp_record_keep wants it.  Nothing may be added afterwards.  Errors: those above. */
int mp_recording_finish(struct mp_recording *recording, struct mp_recording_summary *summary,
                        struct mp_error *error);
