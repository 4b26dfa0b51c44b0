/* What-if: a recorded run once more, with something about it otherwise.
 *
 * Who met whom, and what work and transfers took, is the graph of profiler/straggler/graph.h.
 *
 * Replayed with the recorded work and transfers this gives the recorded times back; with other
 * ones, what the run would have taken, as far as who meets whom stays the same.
 *
 * The ideal of "Understanding Stragglers in Large Model Training" (Lin et al., OSDI 2025) replaces
 * work by its mean over ranks and transfers by their median. */
#pragma once

#include "profiler/record/record.h"
#include "results/report/recorded.h"

struct mp_what_if_change {
    bool balance; /* every rank has the mean tokens: what its experts and exchanges take for others
                     is gone, a slow rank stays slow; where tokens were not recorded, experts' work
                     and the exchanges' transfers are the mean over ranks */
    int layer;    /* balance: of this layer only; -1: all */
    int without_rank; /* is as fast as the others: its own work is the mean of theirs, and more or
                         less by what its tokens take beyond theirs, where tokens were recorded; -1:
                         none */
    bool ideal;       /* nobody is slower than others in anything */
};
/* The run as it was. */
static inline struct mp_what_if_change mp_what_if_nothing(void) {
    return (struct mp_what_if_change){.layer = -1, .without_rank = -1};
}

struct mp_what_if;

/* The recording is borrowed until destroy.  MP_ENOMEM. */
int mp_what_if_create(const struct mp_recorded *recorded, struct mp_what_if **what_if,
                      struct mp_error *error);
void mp_what_if_destroy(struct mp_what_if *what_if); /* accepts NULL */
MP_END(what_if, struct mp_what_if *, mp_what_if_destroy(*it))

int mp_what_if_layers(const struct mp_what_if *what_if); /* largest layer of an expert span + 1 */
bool mp_what_if_knows_tokens(const struct mp_what_if *what_if); /* of every expert span */

/* Seconds of every iteration, [iterations], under a change. */
void mp_what_if_run(struct mp_what_if *what_if, const struct mp_what_if_change *change,
                    double seconds[]);
/* Their median; and that of the seconds that were recorded. */
double mp_what_if_median(struct mp_what_if *what_if, const struct mp_what_if_change *change);
double mp_what_if_recorded(struct mp_what_if *what_if);

/* Own work of a rank, and for how long it is blocked, until others come and by transfers: seconds
 * of an iteration, mean. */
void mp_what_if_rank(const struct mp_what_if *what_if, int rank, double *own, double *blocked);

/* Every span as it is seen here. */
struct mp_what_if_span {
    int iteration, rank; /* iteration: index */
    const struct mp_recorded_span *recorded;
    double own;      /* s, with the gap before it */
    double transfer; /* s; 0 where nobody waited */
};
typedef void mp_what_if_visit(void *context, const struct mp_what_if_span *span);
void mp_what_if_each(const struct mp_what_if *what_if, mp_what_if_visit *visit, void *context);
