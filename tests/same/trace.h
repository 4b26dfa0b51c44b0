/* Traces: what travelled in an iteration, as it is seen from below by those who carry it.
 *
 * Nothing here comes from the schedule.  An operation is what was begun as one and waited for as
 * one; its name is that of its span, and its bytes are those of the messages that were really sent
 * for it, whenever that was (rows at once), or that the network was given.  Own work is there too,
 * as begun and done at once, so that what it has beside it is known; but the order of rows is left
 * out, which the trainer in backward makes while it works on the gate. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "profiler/record/record.h"
#include "reference/plan/load.h"

/* A function whose calls are led through the test's own one (the linker's --wrap). */
#define LED_THROUGH(name)                                                                          \
    __typeof__(name) __real_##name;                                                                \
    __typeof__(name) __wrap_##name

enum { TRACE_RANKS = 16, TRACE_OPERATIONS = 1024 };

/* All members of 32 bits, so that ranks can send it to each other. */
struct trace_operation {
    int32_t phase, direction;
    int32_t layer; /* of what travels; 0 for own work */
    int32_t step;  /* of rows; 0 otherwise */
    int32_t works; /* own work */
    uint32_t each; /* bytes of a dense collective that every rank puts in */
    int32_t free;  /* takes no time: the network is not to see it */
};

struct trace {
    int32_t operations, events;
    struct trace_operation operation[TRACE_OPERATIONS];
    int32_t event[2 * TRACE_OPERATIONS]; /* operation + 1 where it is started, below 0 waited for */
};

/* Bytes of every operation from one rank to the others; of all ranks. */
typedef uint32_t trace_row[TRACE_RANKS];
typedef trace_row trace_matrix[TRACE_RANKS];

/* Returns the number of the operation that is started. */
int trace_start(struct trace *trace, struct trace_operation operation);
void trace_wait(struct trace *trace, int operation);
void trace_work(struct trace *trace, enum mp_phase phase, enum mp_direction direction);
void trace_describe(const struct trace *trace, int operation, char *text, size_t size);

/* Whether both are the same; otherwise the first difference is printed.  `left` and `right` have a
 * matrix for each operation.  What is free on the left is left out, and so are transfers of experts
 * without bytes, which nobody sees. */
bool trace_equal(struct trace *left, trace_matrix left_bytes[], struct trace *right,
                 trace_matrix right_bytes[], int ranks);

/* ---- transport.c: the trainer's side, on every rank ---- */
struct mp_trainer;
/* From now on what the trainer posts is traced: `sent` is [TRACE_OPERATIONS]. */
void transport_watch(struct mp_trainer *trainer, struct trace *trace, trace_row sent[]);
/* The trainer is gone, or unwatched for a while. */
void transport_forget(void);

/* ---- network.c: the predictor's side ---- */
struct mp_job_file;
struct mp_setting;
/* On a cluster of the job's ranks and nodes; its planners are to be told `setting` by themselves,
 * and fail the test otherwise. */
void network_create(const struct mp_job_file *job, const struct mp_setting *setting);
void network_destroy(void);
/* The next iteration, with the loads of its layers. */
void network_step(const struct mp_load load[], struct trace *trace, trace_matrix bytes[]);
