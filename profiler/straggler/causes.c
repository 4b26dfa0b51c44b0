/* Causes: see causes.h. */
#include "profiler/straggler/causes.h"

#include <math.h>
#include <stdlib.h>

#include "profiler/record/record.h"
#include "reference/base/median.h"

enum {
    DIRECTIONS = 3,
    PHASES = MP_PHASES + 1, /* one more for names that nobody knows */
    PAIRS = 8               /* fewer pairs of iterations give a rank no slope */
};

const char *mp_cause_name(enum mp_cause cause) {
    static const char *const names[MP_CAUSES] = {
        "routing", "slow rank", "one-off", "communication", "host", "late from before", "unknown"};
    return (unsigned)cause < MP_CAUSES ? names[cause] : "?";
}

/* ---- medians ---- */

double mp_lower_median(double value[], int count) {
    if (count == 0)
        return NAN;
    mp_sort_numbers(value, count);
    return value[(count - 1) / 2];
}

struct weighted {
    double value, weight;
};

static int compare_weighted(const void *left, const void *right) {
    const struct weighted *a = left, *b = right;
    return (a->value > b->value) - (a->value < b->value);
}

static double weighted_median(struct weighted item[], int count) {
    double all = 0, sum = 0;
    qsort(item, (size_t)count, sizeof *item, compare_weighted);
    for (int i = 0; i < count; i++)
        all += item[i].weight;
    for (int i = 0; i < count; i++) {
        sum += item[i].weight;
        if (sum >= 0.5 * all)
            return item[i].value;
    }
    return 0;
}

/* ---- nodes of one kind and rank ---- */

/* Nodes sorted by kind, rank and iteration. */
struct row {
    int kind, rank, node;
};

static int compare_rows(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    const int difference[] = {a->kind - b->kind, a->rank - b->rank, a->node - b->node};
    for (size_t i = 0; i < sizeof difference / sizeof *difference; i++)
        if (difference[i])
            return difference[i];
    return 0;
}

struct work {
    struct row *row;       /* [spans] */
    double *value;         /* [spans] */
    struct weighted *pair; /* [spans] */
    double *by_rank;       /* [ranks] */
};

/* End of the rows of the same kind and rank. */
static int end_of_rows(const struct work *work, int rows, int from) {
    int end = from;
    while (end < rows && work->row[end].kind == work->row[from].kind &&
           work->row[end].rank == work->row[from].rank)
        end++;
    return end;
}

static const struct mp_recorded_span *span_of(const struct mp_causes *causes, int node) {
    return &causes->graph->times.span[node];
}

static double *slope_of(const struct mp_causes *causes, int phase, int direction) {
    int p = phase < PHASES ? phase : PHASES - 1, d = direction < DIRECTIONS ? direction : 2;
    return &causes->slope[p * DIRECTIONS + d];
}

/* ---- slopes ---- */

/* Adds one rank's pairs of iterations: how much more time for how many more tokens. */
static int add_pairs(const struct mp_causes *causes, struct work *work, const struct row row[],
                     int rows, int count) {
    for (int i = 1; i < rows; i++) {
        int a = row[i - 1].node, b = row[i].node;
        double before = (double)span_of(causes, a)->tokens,
               now = (double)span_of(causes, b)->tokens;
        if (before < 0 || now < 0 || fabs(now - before) <= 0.05 * (now + before) / 2)
            continue; /* none beside none, too, says nothing of what a token takes */
        double more = causes->graph->node[b].own - causes->graph->node[a].own;
        work->pair[count++] = (struct weighted){more / (now - before), fabs(now - before)};
    }
    return count;
}

/* The slope of one phase and direction on one rank: from iteration to iteration, or in proportion
 * where tokens hardly change; never more than in proportion, as nothing takes less than no time. */
static double rank_slope(const struct mp_causes *causes, struct work *work, int rows, int phase,
                         int direction, int rank) {
    int pairs = 0, values = 0;
    for (int from = 0, end; from < rows; from = end) {
        end = end_of_rows(work, rows, from);
        const struct mp_graph_kind *kind = &causes->graph->kind[work->row[from].kind];
        if (kind->phase != phase || kind->direction != direction || work->row[from].rank != rank)
            continue;
        pairs = add_pairs(causes, work, &work->row[from], end - from, pairs);
        for (int i = from; i < end; i++) {
            int64_t tokens = span_of(causes, work->row[i].node)->tokens;
            if (tokens > 0)
                work->value[values++] = causes->graph->node[work->row[i].node].own / (double)tokens;
        }
    }
    double proportional = mp_median_of(work->value, values);
    double slope = pairs >= PAIRS ? weighted_median(work->pair, pairs) : proportional;
    return slope < 0 ? 0 : slope > proportional ? proportional : slope;
}

static void find_slopes(struct mp_causes *causes, struct work *work) {
    const struct mp_graph *graph = causes->graph;
    int rows = (int)graph->times.spans;
    bool counts[PHASES * DIRECTIONS] = {false};
    for (int n = 0; n < rows; n++) {
        const struct mp_recorded_span *span = span_of(causes, n);
        if (span->tokens > 0)
            counts[slope_of(causes, span->phase, span->direction) - causes->slope] = true;
    }
    for (int i = 0; i < PHASES * DIRECTIONS; i++) {
        int count = 0;
        for (int r = 0; r < graph->times.ranks && counts[i]; r++) {
            double slope = rank_slope(causes, work, rows, i / DIRECTIONS, i % DIRECTIONS, r);
            if (!isnan(slope))
                work->by_rank[count++] = slope;
        }
        causes->slope[i] = count ? mp_lower_median(work->by_rank, count) : 0;
    }
}

/* ---- what is usual ---- */

static double without_tokens(const struct mp_causes *causes, int node) {
    const struct mp_recorded_span *span = span_of(causes, node);
    double own = causes->graph->node[node].own;
    return span->tokens > 0
               ? own - *slope_of(causes, span->phase, span->direction) * (double)span->tokens
               : own;
}

static void find_usual(struct mp_causes *causes, struct work *work) {
    const struct mp_graph *graph = causes->graph;
    int rows = (int)graph->times.spans;
    for (int from = 0, end; from < rows; from = end) {
        end = end_of_rows(work, rows, from);
        int count = end - from;
        struct mp_usual *usual =
            &causes->usual[(size_t)work->row[from].kind * (size_t)graph->times.ranks +
                           (size_t)work->row[from].rank];
        for (int i = 0; i < count; i++)
            work->value[i] = graph->node[work->row[from + i].node].transfer;
        usual->transfer = mp_median_of(work->value, count);
        for (int i = 0; i < count; i++)
            work->value[i] = without_tokens(causes, work->row[from + i].node);
        usual->own = mp_median_of(work->value, count);
        for (int i = 0; i < count; i++)
            work->value[i] = fabs(work->value[i] - usual->own);
        /* 1.4826 median deviations are a standard deviation; a median's error is 1.2533 of a
         * mean's. */
        usual->error = 1.4826 * 1.2533 * mp_median_of(work->value, count) / sqrt(count);
    }
}

/* Tokens of a node's rank in the experts of its layer; NULL without a layer of experts. */
static double *layer_tokens_of(const struct mp_causes *causes, int node) {
    const struct mp_graph *graph = causes->graph;
    int layer = span_of(causes, node)->layer;
    if (layer < 0 || layer >= graph->layers)
        return NULL;
    return &causes->layer_tokens[((size_t)graph->group[graph->node[node].group].iteration *
                                      (size_t)graph->layers +
                                  (size_t)layer) *
                                     (size_t)graph->times.ranks +
                                 (size_t)graph->node[node].rank];
}

/* While layer_tokens is filled: the rank has spans in the layer, but none of its experts; one of
 * its experts that does not say how many tokens it had is NAN. */
static const double TAKES_PART = -2;

static void add_layer_tokens(const struct mp_recorded_span *span, double *tokens) {
    if (*tokens == -1)
        *tokens = TAKES_PART;
    if (span->phase != MP_PHASE_EXPERT || span->direction != MP_FORWARD)
        return;
    if (*tokens == TAKES_PART)
        *tokens = 0;
    *tokens += span->tokens < 0 ? NAN : (double)span->tokens;
}

/* Who takes part in a layer whose experts others compute, and computes none, has no tokens there:
 * that is not the same as nobody having counted them. */
static void finish_layer_tokens(double tokens[], int ranks) {
    bool counted = false;
    for (int r = 0; r < ranks; r++)
        counted = counted || tokens[r] >= 0;
    for (int r = 0; r < ranks; r++)
        if (!(tokens[r] >= 0))
            tokens[r] = counted && tokens[r] == TAKES_PART ? 0 : -1;
}

static void find_layer_tokens(struct mp_causes *causes) {
    const struct mp_graph *graph = causes->graph;
    size_t ranks = (size_t)graph->times.ranks;
    size_t rows = (size_t)graph->times.iterations * (size_t)graph->layers;
    for (size_t i = 0; i < rows * ranks; i++)
        causes->layer_tokens[i] = -1;
    for (size_t n = 0; n < graph->times.spans; n++) {
        double *tokens = layer_tokens_of(causes, (int)n);
        if (tokens)
            add_layer_tokens(span_of(causes, (int)n), tokens);
    }
    for (size_t i = 0; i < rows; i++)
        finish_layer_tokens(causes->layer_tokens + i * ranks, graph->times.ranks);
}

static double own_layer_tokens(const struct mp_causes *causes, int node) {
    const double *tokens = layer_tokens_of(causes, node);
    return tokens ? *tokens : -1;
}

/* Mean tokens of a group's ranks; -1 where one does not say. */
static double mean_tokens(const struct mp_causes *causes, const struct mp_graph_group *group) {
    double sum = 0;
    for (int m = 0; m < group->count; m++) {
        int64_t tokens = span_of(causes, causes->graph->member[group->first + m])->tokens;
        if (tokens < 0)
            return -1;
        sum += (double)tokens;
    }
    return sum / (group->count + group->absent);
}

static void find_reference(struct mp_causes *causes, struct work *work, int index) {
    const struct mp_graph *graph = causes->graph;
    const struct mp_graph_group *group = &graph->group[index];
    struct mp_reference *reference = &causes->reference[index];
    double *const median_of[] = {&reference->own, &reference->tokens,   &reference->usual,
                                 &reference->gap, &reference->transfer, &reference->layer_tokens};
    for (int f = 0; f < 6; f++) {
        int count = 0;
        for (int m = 0; m < group->count; m++) {
            int n = graph->member[group->first + m];
            const struct mp_graph_node *node = &graph->node[n];
            const double value[] = {
                node->own,
                (double)span_of(causes, n)->tokens,
                causes->usual[(size_t)group->kind * (size_t)graph->times.ranks + (size_t)node->rank]
                    .own,
                node->gap,
                node->transfer,
                own_layer_tokens(causes, n)};
            work->by_rank[count++] = value[f];
        }
        for (int a = 0; a < group->absent && f < 3; a++)
            work->by_rank[count++] = 0;
        *median_of[f] = mp_lower_median(work->by_rank, count);
    }
    reference->mean_tokens = mean_tokens(causes, group);
}

/* ---- life ---- */

static void fill(struct mp_causes *causes, struct work *work) {
    const struct mp_graph *graph = causes->graph;
    find_layer_tokens(causes);
    causes->knows_tokens = true;
    causes->knows_usual = graph->times.iterations >= MP_STRAGGLER_ITERATIONS;
    for (size_t n = 0; n < graph->times.spans; n++) {
        const struct mp_graph_node *node = &graph->node[n];
        work->row[n] = (struct row){graph->group[node->group].kind, node->rank, (int)n};
        if (span_of(causes, (int)n)->phase == MP_PHASE_EXPERT &&
            span_of(causes, (int)n)->tokens < 0)
            causes->knows_tokens = false;
    }
    qsort(work->row, graph->times.spans, sizeof *work->row, compare_rows);
    find_slopes(causes, work);
    find_usual(causes, work);
    for (int g = 0; g < graph->groups; g++)
        find_reference(causes, work, g);
}

int mp_causes_find(const struct mp_graph *graph, struct mp_causes *causes, struct mp_error *error) {
    size_t spans = graph->times.spans + 1, ranks = (size_t)graph->times.ranks;
    struct work work = {
        .row = calloc(spans, sizeof *work.row),
        .value = calloc(spans, sizeof *work.value),
        .pair = calloc(spans, sizeof *work.pair),
        .by_rank = calloc(ranks, sizeof *work.by_rank),
    };
    *causes = (struct mp_causes){
        .graph = graph,
        .usual = calloc(((size_t)graph->kinds + 1) * ranks, sizeof *causes->usual),
        .reference = calloc((size_t)graph->groups + 1, sizeof *causes->reference),
        .slope = calloc(PHASES * DIRECTIONS, sizeof *causes->slope),
        .layer_tokens = calloc((size_t)graph->times.iterations * (size_t)graph->layers * ranks + 1,
                               sizeof *causes->layer_tokens),
    };
    int code = MP_OK;
    if (!work.row || !work.value || !work.pair || !work.by_rank || !causes->usual ||
        !causes->reference || !causes->slope || !causes->layer_tokens)
        code = mp_fail(error, MP_ENOMEM, "no memory for the causes of %zu spans", spans - 1);
    else
        fill(causes, &work);
    free(work.row);
    free(work.value);
    free(work.pair);
    free(work.by_rank);
    if (code)
        mp_causes_destroy(causes);
    return code;
}

void mp_causes_destroy(struct mp_causes *causes) {
    free(causes->usual);
    free(causes->reference);
    free(causes->slope);
    free(causes->layer_tokens);
    *causes = (struct mp_causes){0};
}

/* ---- splitting ---- */

static enum mp_cause class_of(int phase) {
    switch (phase) {
    case MP_PHASE_DATA:
    case MP_PHASE_PLAN:
    case MP_PHASE_VALIDATE:
    case MP_PHASE_CHECKPOINT:
    case MP_PHASES:
        return MP_CAUSE_HOST;
    case MP_PHASE_FETCH:
    case MP_PHASE_REDUCE:
    case MP_PHASE_ALLREDUCE:
    case MP_PHASE_MOVE:
    case MP_PHASE_WAIT:
        return MP_CAUSE_COMMUNICATION;
    default:
        return MP_CAUSE_SLOW;
    }
}

static double between(double value, double least, double most) {
    return value < least ? least : value > most ? most : value;
}

static const struct mp_usual *usual_of(const struct mp_causes *causes, int node) {
    const struct mp_graph *graph = causes->graph;
    return &causes->usual[(size_t)graph->group[graph->node[node].group].kind *
                              (size_t)graph->times.ranks +
                          (size_t)graph->node[node].rank];
}

struct mp_reference mp_causes_against(const struct mp_causes *causes, int group, int rank) {
    const struct mp_graph *graph = causes->graph;
    struct mp_reference reference = causes->reference[group];
    int node = mp_graph_member(graph, &graph->group[group], rank);
    if (node >= 0) {
        const struct mp_graph_node *own = &graph->node[node];
        reference.own = own->own;
        reference.gap = own->gap;
        reference.transfer = own->transfer;
        reference.tokens = (double)span_of(causes, node)->tokens;
        reference.usual = usual_of(causes, node)->own;
        reference.layer_tokens = own_layer_tokens(causes, node);
    } else if (mp_graph_is_absent(graph, &graph->group[group], rank)) {
        reference.own = reference.tokens = reference.usual = 0;
    }
    return reference;
}

double mp_causes_surplus(const struct mp_causes *causes, int node) {
    const struct mp_recorded_span *span = span_of(causes, node);
    const struct mp_graph_node *own = &causes->graph->node[node];
    double mean = causes->reference[own->group].mean_tokens;
    if (class_of(span->phase) != MP_CAUSE_SLOW || mean < 0)
        return 0;
    return fmin(own->own,
                *slope_of(causes, span->phase, span->direction) * ((double)span->tokens - mean));
}

void mp_causes_split_transfer(const struct mp_causes *causes, int node,
                              const struct mp_reference *reference, double seconds,
                              double part[MP_CAUSES]) {
    double tokens = own_layer_tokens(causes, node);
    for (int c = 0; c < MP_CAUSES; c++)
        part[c] = 0;
    int phase = span_of(causes, node)->phase;
    if ((phase == MP_PHASE_DISPATCH || phase == MP_PHASE_COMBINE) && reference->layer_tokens >= 0 &&
        tokens > reference->layer_tokens)
        part[MP_CAUSE_ROUTING] =
            reference->layer_tokens > 0
                ? between(reference->transfer * (tokens / reference->layer_tokens - 1), 0, seconds)
                : seconds;
    part[MP_CAUSE_COMMUNICATION] = seconds - part[MP_CAUSE_ROUTING];
}

void mp_causes_split(const struct mp_causes *causes, int node, const struct mp_reference *reference,
                     double seconds, double part[MP_CAUSES]) {
    const struct mp_recorded_span *span = span_of(causes, node);
    const struct mp_usual *usual = usual_of(causes, node);
    for (int c = 0; c < MP_CAUSES; c++)
        part[c] = 0;
    enum mp_cause class = class_of(span->phase);
    if (class != MP_CAUSE_SLOW) {
        part[class] = seconds;
        return;
    }
    if (span->phase == MP_PHASE_EXPERT && !causes->knows_tokens) {
        part[MP_CAUSE_UNKNOWN] = seconds;
        return;
    }
    if (span->tokens >= 0 && reference->tokens >= 0)
        part[MP_CAUSE_ROUTING] = between(*slope_of(causes, span->phase, span->direction) *
                                             ((double)span->tokens - reference->tokens),
                                         0, seconds);
    double rest = seconds - part[MP_CAUSE_ROUTING], longer = usual->own - reference->usual;
    if (!causes->knows_usual) {
        part[MP_CAUSE_UNKNOWN] = rest;
        return;
    }
    if (longer > 3 * sqrt(2) * usual->error)
        part[MP_CAUSE_SLOW] = between(longer, 0, rest);
    part[MP_CAUSE_ONE_OFF] = rest - part[MP_CAUSE_SLOW];
}
