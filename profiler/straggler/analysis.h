/* The analysis while it goes on, shared by the files of this folder. */
#ifndef MOEPERF_PROFILER_STRAGGLER_ANALYSIS_H
#define MOEPERF_PROFILER_STRAGGLER_ANALYSIS_H

#include "profiler/straggler/straggler.h"
#include "profiler/straggler/waits.h"

struct analysis {
    const struct mp_straggler_input *input;
    struct mp_recorded_times times; /* the input's, or those below */
    struct mp_arena memory;         /* of times that were put together where ranks leave meetings */
    struct mp_graph *graph;
    struct mp_waits waits;
    struct mp_causes causes;
    struct mp_straggler *out;
};

static inline double analysis_tokens(const struct analysis *analysis, int iteration, int layer,
                                     int rank) {
    const struct mp_graph *graph = analysis->graph;
    return analysis->causes
        .layer_tokens[((size_t)iteration * (size_t)graph->layers + (size_t)layer) *
                          (size_t)graph->times.ranks +
                      (size_t)rank];
}

/* clocks.c: makes the graph, on times that can be compared; fills what `out` says of clocks. */
int analysis_make_graph(struct analysis *analysis, struct mp_error *error);

/* findings.c: fills finding, rank, waiting, culprit_changes and most_waited_for. */
int analysis_find(struct analysis *analysis, struct mp_error *error);

/* places.c */
int analysis_find_places(struct analysis *analysis, struct mp_error *error);
/* Balance of routes; `analysis->graph` may be NULL. */
int analysis_find_balance(struct analysis *analysis, struct mp_error *error);

#endif
