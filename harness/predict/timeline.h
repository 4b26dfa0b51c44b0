/* Timeline: the clocks of all ranks in model time.
 *
 * All ranks run the same program, so an iteration is a sequence of operations over vectors of
 * clocks, without a queue of events.  A rank has two streams.  "compute" does the rank's own work
 * and waits.  "comm" carries what travels, in two lanes:
 * - exchanges come first, one behind the other: each when the rank comes to it or the one before is
 *   done;
 * - a background operation begins when the last rank with a part in it has issued it, and goes on
 *   for a given time on each of these ranks, but not while an exchange has the gates that it needs:
 *   while one waits for others it has none, and rows that stay inside a node have none of those to
 *   other nodes.  Of its time, so much is needed for gates of other levels, too; that passes only
 *   while there is no exchange.  Background operations take their turns in the order in which they
 *   were issued.
 *
 * Where the processor that computes also copies (`overlap` below 1), a rank's own work goes on at
 * this share of its speed while a background operation moves on its stream.  Nothing is taken from
 * work by exchanges, during which the rank waits anyway.
 *
 * A delay that is injected (reference/trainer/inject.h) makes spans of the compute stream longer at
 * their end, as in the trainer: the rank goes on later, and what travels in the background goes on
 * meanwhile.
 *
 * Time is in seconds from the iteration's beginning. */
#pragma once

#include "harness/predict/network.h"
#include "harness/predict/predictor.h"
#include "reference/schedule/schedule.h"
#include "reference/trainer/inject.h"

/* What a background operation needs: [ranks] each. */
struct mp_carriage {
    bool any;
    double *seconds;  /* with everybody there at once; 0: no part in it */
    double *alone;    /* that the rank's own gates are busy (mp_network_alone) */
    double *received; /* bytes; NULL without a sink for spans */
    double *others;   /* seconds of gates at other levels than this, at most all */
    uint8_t *level;   /* of the cluster; NULL where others are all */
};

/* A background operation on its way. */
struct mp_background {
    struct mp_scheduled_phase activity;
    double begin;
    double *remaining; /* [ranks] seconds that it still needs */
    double *others;    /* [ranks] of these: of gates at other levels than this */
    uint8_t *level;    /* [ranks] */
    double *finish;   /* [ranks] when it had them; of ranks without a part: the beginning of time */
    double *received; /* [ranks] bytes */
};

/* When an exchange has a rank's gates at these levels: bits 1 << level. */
struct mp_taken {
    double start, end;
    unsigned levels;
};
enum { MP_MOST_TAKEN = 20 }; /* of a rank, that the background may not have passed yet */

/* Sums over ranks, of an iteration. */
struct mp_time_sums {
    double spent[MP_PHASES];  /* seconds in the phases of the compute stream */
    double waited[MP_PHASES]; /* of it waiting */
    double late;              /* of all waiting: for ranks that come late */
    double transfers;         /* seconds of the comm stream for copies and gradients of experts */
    double serial;            /* every operation at its slowest rank; not a sum over ranks */
};

struct mp_timeline {
    struct mp_network *network; /* borrowed */
    struct mp_predict_sink sink;
    struct mp_inject inject; /* as a job asks for it; seconds 0, as at first: nothing */
    int ranks;
    double overlap;
    int64_t iteration;              /* counted from the first one */
    int64_t number;                 /* what spans call it */
    int64_t origin_ns;              /* of the iteration, from the run's beginning */
    double *clock;                  /* [ranks] */
    double *waited;                 /* [ranks] of the clock: waiting, so far */
    double *exchanged;              /* [ranks] when the last exchange so far ends */
    double *moved;                  /* [ranks] up to when the background has been carried out */
    struct mp_taken *taken;         /* [ranks][MP_MOST_TAKEN], from [first_taken] on, around */
    int *first_taken, *taken_count; /* [ranks] */
    double *port;  /* [ranks] seconds that the rank's own gates were busy and held it up: those
                      who share a gate may be done before it is */
    double *owed;  /* [ranks] what exchanges on their way take longer as others came late */
    double *ready; /* [ranks] working memory */
    double *mark;  /* [ranks] the clocks when the present phase began */
    double *mark_waited;
    int64_t issued; /* background operations since the iteration's beginning */
    int64_t *next;  /* [ranks] the first one that has not finished there */
    int64_t capacity;
    struct mp_background *background; /* [capacity], operation i at i % capacity */
    struct mp_arena memory;           /* of all arrays */
    struct mp_time_sums sums;
};

/* `background`: most background operations that are on their way at once.  MP_ENOMEM. */
int mp_timeline_create(struct mp_network *network, int ranks, double overlap, int background,
                       const struct mp_predict_sink *sink, struct mp_timeline *timeline,
                       struct mp_error *error);
void mp_timeline_destroy(struct mp_timeline *timeline); /* accepts a zeroed one */
/* All clocks at zero, nothing on its way. */
void mp_timeline_begin(struct mp_timeline *timeline, int64_t iteration, int64_t number);

/* A phase of the compute stream begins; and ends, as a span of every rank: `tokens` and `bytes` are
 * [ranks], flops is per token; NULL and -1: does not apply.  Ranks for which neither time has
 * passed nor anything is to be told have none.  Returns the seconds of all ranks. */
void mp_timeline_mark(struct mp_timeline *timeline);
double mp_timeline_spent(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                         const int64_t tokens[], const double bytes[], double flops);

/* Own work: the same on all ranks, or of each. */
void mp_timeline_work(struct mp_timeline *timeline, double seconds);
void mp_timeline_work_each(struct mp_timeline *timeline, const double seconds[]);

/* An exchange, without waiting: starts at `start` or when earlier ones are done, and
 * sets done[ranks].  Its traffic goes in rounds: a rank comes to the next one when its part of the
 * one before is done.  `alone` is mp_network_alone's of the traffic, of all rounds together;
 * `received` [ranks] is for spans only and may be NULL.  start and done may be the same array. */
void mp_timeline_exchange_start(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                                struct mp_traffic *const traffic[], int rounds, bool back,
                                const double alone[], const double received[], const double start[],
                                double done[]);
/* Until then at least, waiting for exchanges on their way. */
void mp_timeline_wait_until(struct mp_timeline *timeline, const double time[]);
/* Nothing is on its way any more: whatever took longer has passed under own work. */
void mp_timeline_forget_late(struct mp_timeline *timeline);
/* An operation of all ranks, which takes so long once the last one has come. */
void mp_timeline_together(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                          double seconds);

/* A background operation sets out.  Returns its number. */
int64_t mp_timeline_start(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                          const struct mp_carriage *carriage);
/* Waits for an operation of this iteration. */
void mp_timeline_wait(struct mp_timeline *timeline, int64_t number);

/* Ends the iteration for all ranks; all clocks are equal then.  Returns them. */
double mp_timeline_end(struct mp_timeline *timeline, int64_t tokens);
