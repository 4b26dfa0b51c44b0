/* Whether the ranks' times can be compared, and what to do where they can't. */
#include <math.h>
#include <stdlib.h>

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"

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
    double *early = calloc((size_t)graph->groups + 1, sizeof *early);
    int meetings = 0;
    if (!early)
        return mp_fail(error, MP_ENOMEM, "no memory for %d meetings", graph->groups);
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
    free(early);
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
    size_t ranks = (size_t)times->iterations * (size_t)times->ranks;
    analysis->rank = calloc(ranks + 1, sizeof *analysis->rank);
    analysis->span = calloc(times->spans + 1, sizeof *analysis->span);
    double *middle = calloc((size_t)times->ranks, sizeof *middle);
    double *difference = calloc((size_t)analysis->graph->groups + 1, sizeof *difference);
    int code = MP_OK;
    if (!analysis->rank || !analysis->span || !middle || !difference)
        code = mp_fail(error, MP_ENOMEM, "no memory to align %zu spans", times->spans);
    for (size_t i = 0; !code && i < ranks; i++) {
        struct mp_recorded_rank rank = times->rank[i];
        double shift = ahead(analysis->graph, (int)(i / (size_t)times->ranks),
                             (int)(i % (size_t)times->ranks), middle, difference);
        for (int s = 0; s < rank.count; s++) {
            struct mp_recorded_span *span = &analysis->span[rank.first + (size_t)s];
            *span = times->span[rank.first + (size_t)s];
            span->start -= shift;
            span->end -= shift;
        }
        rank.start -= shift;
        rank.end -= shift;
        analysis->rank[i] = rank;
    }
    free(middle);
    free(difference);
    if (!code) {
        analysis->times.rank = analysis->rank;
        analysis->times.span = analysis->span;
    }
    return code;
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

int analysis_make_graph(struct analysis *analysis, struct mp_error *error) {
    const struct mp_straggler_input *input = analysis->input;
    struct mp_straggler *out = analysis->out;
    double *value = calloc((size_t)input->times.iterations + 1, sizeof *value);
    if (!value)
        return mp_fail(error, MP_ENOMEM, "no memory for %d iterations", input->times.iterations);
    out->seconds = median_seconds(&input->times, value);
    int code = mp_graph_create(&analysis->times, input->clock_error, &analysis->graph, error);
    if (!code)
        code = check_meetings(analysis, error);
    if (!code) {
        out->finest = meetings_of(analysis->graph) * out->clock_error;
        out->clock_free = !input->common_clock || out->finest > MP_STRAGGLER_LEAST * out->seconds;
    }
    if (!code && out->clock_free) {
        code = put_together(analysis, error);
        mp_graph_destroy(analysis->graph);
        analysis->graph = NULL;
        out->finest = 0;
        if (!code) /* what differs by less than this was together */
            code = mp_graph_create(&analysis->times, 1e-3 * out->seconds, &analysis->graph, error);
        if (!code)
            out->seconds = median_seconds(&analysis->times, value);
    }
    free(value);
    return code;
}
