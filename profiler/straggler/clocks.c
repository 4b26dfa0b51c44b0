/* Whether the ranks' times can be compared, and what to do where they can't. */
#include <math.h>
#include <stdlib.h>

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"

static void shift(double *start, double *end, double begin, double unit) {
    *start = unit * (*start - begin);
    *end = unit * (*end - begin);
}

void mp_recorded_shift(struct mp_recorded_rank rank[], struct mp_recorded_span span[],
                       const struct mp_recorded_times *times, double unit) {
    for (int i = 0; i < times->iterations; i++, rank += times->ranks) {
        double begin = INFINITY;
        for (int r = 0; r < times->ranks; r++)
            begin = fmin(begin, rank[r].start);
        for (int r = 0; r < times->ranks; r++) {
            shift(&rank[r].start, &rank[r].end, begin, unit);
            for (size_t s = rank[r].first; s < rank[r].first + (size_t)rank[r].count; s++)
                shift(&span[s].start, &span[s].end, begin, unit);
        }
    }
}

/* Nobody leaves these before all have come. */
static bool synchronises(const struct mp_graph *graph, const struct mp_graph_group *group) {
    const struct mp_graph_kind *kind = &graph->kind[group->kind];
    return group->meets && group->count == graph->times.ranks &&
           (kind->phase == MP_PHASE_WAIT ||
            (kind->phase == MP_PHASE_GATE && kind->direction == MP_FORWARD));
}

static double last_arrival(const struct mp_graph *graph, const struct mp_graph_group *group) {
    double last = -1e300;
    for (int m = 0; m < group->count; m++)
        last = fmax(last, graph->node[graph->member[group->first + m]].arrived);
    return last;
}

/* What the recording itself says about its clocks. */
static int check_meetings(struct analysis *analysis, struct mp_error *error) {
    const struct mp_graph *graph = analysis->graph;
    MP_AUTO(memory) double *early = NULL;
    int meetings = 0;
    MP_TRY(MP_NEW(early, (size_t)graph->groups + 1, error));
    for (int g = 0; g < graph->groups; g++) {
        const struct mp_graph_group *group = &graph->group[g];
        if (!synchronises(graph, group))
            continue;
        double last = last_arrival(graph, group), first = 1e300;
        for (int m = 0; m < group->count; m++)
            first = fmin(first, graph->node[graph->member[group->first + m]].released);
        early[meetings] = fmax(0, last - first);
        analysis->out->violations += early[meetings] > analysis->input->clock_error;
        analysis->out->worst_violation = fmax(analysis->out->worst_violation, early[meetings]);
        meetings++;
    }
    struct mp_percentiles seen = mp_percentiles_of(early, meetings);
    analysis->out->clock_error = analysis->input->clock_error;
    if (meetings > 0 && seen.p90 > analysis->out->clock_error)
        analysis->out->clock_error = seen.p90;
    return MP_OK;
}

/* Meetings of an iteration, mean. */
static double meetings_of(const struct mp_graph *graph) {
    int meetings = 0;
    for (int g = 0; g < graph->groups; g++)
        meetings += graph->group[g].meets;
    return graph->times.iterations ? (double)meetings / graph->times.iterations : 0;
}

/* ---- times put together ---- */

/* How far one rank's clock is ahead in an iteration: median over the meetings of all ranks of when
 * it leaves them, against the ranks' median. */
static double ahead(const struct mp_graph *graph, int iteration, int rank, double middle[],
                    double difference[]) {
    const struct mp_graph_stage *stage = &graph->stage[iteration];
    int count = 0;
    for (int g = 0; g < stage->groups; g++) {
        const struct mp_graph_group *group = &graph->group[stage->first_group + g];
        if (!group->meets || group->count != graph->times.ranks)
            continue;
        for (int m = 0; m < group->count; m++)
            middle[m] = graph->node[graph->member[group->first + m]].released;
        double own = middle[rank];
        difference[count++] = own - mp_lower_median(middle, group->count);
    }
    return count ? mp_lower_median(difference, count) : 0;
}

static int put_together(struct analysis *analysis, struct mp_error *error) {
    const struct mp_recorded_times *times = &analysis->input->times;
    const int ranks = times->iterations * times->ranks;
    struct mp_recorded_rank *rank;
    struct mp_recorded_span *span;
    double *middle, *difference;
    MP_TAKE(&analysis->memory, rank, ranks + 1);
    MP_TAKE(&analysis->memory, span, times->spans + 1);
    MP_TAKE(&analysis->memory, middle, times->ranks);
    MP_TAKE(&analysis->memory, difference, analysis->graph->groups + 1);
    MP_TRY(mp_arena_check(&analysis->memory, error));
    for (int i = 0; i < ranks; i++) {
        const double shift =
            ahead(analysis->graph, i / times->ranks, i % times->ranks, middle, difference);
        rank[i] = times->rank[i];
        for (size_t s = rank[i].first; s < rank[i].first + (size_t)rank[i].count; s++) {
            span[s] = times->span[s];
            span[s].start -= shift;
            span[s].end -= shift;
        }
        rank[i].start -= shift;
        rank[i].end -= shift;
    }
    mp_recorded_shift(rank, span, times, 1);
    analysis->times.rank = rank;
    analysis->times.span = span;
    return MP_OK;
}

/* ---- all of it ---- */

static double median_seconds(const struct mp_recorded_times *times, double value[]) {
    for (int i = 0; i < times->iterations; i++) {
        value[i] = 0;
        for (int r = 0; r < times->ranks; r++)
            value[i] = fmax(value[i], mp_recorded_rank_at(times, i, r)->end);
    }
    return mp_percentiles_of(value, times->iterations).p50;
}

static int make_graph(struct analysis *analysis, double value[], struct mp_error *error) {
    const struct mp_straggler_input *input = analysis->input;
    struct mp_straggler *out = analysis->out;
    out->seconds = median_seconds(&input->times, value);
    MP_TRY(mp_graph_create(&analysis->times, input->clock_error, &analysis->graph, error));
    MP_TRY(check_meetings(analysis, error));
    out->finest = meetings_of(analysis->graph) * out->clock_error;
    out->clock_free = !input->common_clock || out->finest > MP_STRAGGLER_LEAST * out->seconds;
    if (!out->clock_free)
        return MP_OK;
    MP_TRY(put_together(analysis, error));
    mp_graph_destroy(analysis->graph);
    out->finest = 0;
    /* What differs by less than this was together. */
    MP_TRY(mp_graph_create(&analysis->times, 1e-3 * out->seconds, &analysis->graph, error));
    out->seconds = median_seconds(&analysis->times, value);
    return MP_OK;
}

int analysis_make_graph(struct analysis *analysis, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena memory = {0};
    double *value = mp_arena_take(&memory, (size_t)analysis->times.iterations + 1, sizeof *value);
    return value ? make_graph(analysis, value, error) : mp_no_memory(error);
}
