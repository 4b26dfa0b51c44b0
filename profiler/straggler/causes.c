#include "profiler/straggler/causes.h"

#include <math.h>
#include <stdlib.h>

#include "profiler/record/record.h"
#include "reference/base/median.h"
#include "reference/base/order.h"

enum {
    DIRECTIONS = 3,
    PHASES = MP_PHASES + 1, /* one more for names that nobody knows */
    PAIRS = 8               /* fewer pairs of iterations give a rank no slope */
};

#define WORK(phase) (1u << MP_PHASE_##phase)
#define ENOUGH MP_EVIDENCE_ITERATIONS

const struct mp_cause_kind *mp_cause_kind(enum mp_cause cause) {
    static const struct mp_cause_kind kinds[MP_CAUSES] = {
        [MP_CAUSE_ROUTING] = {"routing", 0, MP_EVIDENCE_TOKENS, NULL, false},
        [MP_CAUSE_SLOW] = {"slow rank", 0, MP_EVIDENCE_TOKENS | ENOUGH, NULL, false},
        [MP_CAUSE_ONE_OFF] = {"one-off", 0, ENOUGH, NULL, true},
        [MP_CAUSE_COMMUNICATION] = {"communication",
                                    WORK(FETCH) | WORK(REDUCE) | WORK(ALLREDUCE) | WORK(MOVE) |
                                        WORK(WAIT) | WORK(SEND) | WORK(RECV),
                                    MP_EVIDENCE_CLOCK, NULL, false},
        [MP_CAUSE_LINK] = {"slow link", 0, MP_EVIDENCE_CLOCK | ENOUGH, NULL, false},
        [MP_CAUSE_STAGE] = {"pipeline stage", 0, WORK(SEND) | WORK(RECV),
                            "spans of phases send and recv", false},
        [MP_CAUSE_DATA] = {"data loading", WORK(DATA), WORK(DATA), "spans of phase data", true},
        [MP_CAUSE_CHECKPOINT] = {"checkpointing", WORK(CHECKPOINT), WORK(CHECKPOINT),
                                 "spans of phase checkpoint", true},
        [MP_CAUSE_COLLECT] = {"garbage collection", WORK(COLLECT), WORK(COLLECT),
                              "spans of phase collect", true},
        [MP_CAUSE_STOLEN] = {"stolen processor", 0, MP_EVIDENCE_CPU | ENOUGH,
                             "processor time of iterations", false},
        [MP_CAUSE_HOST] = {"host", WORK(PLAN) | WORK(VALIDATE) | 1u << MP_PHASES, 0, NULL, false},
        [MP_CAUSE_BEFORE] = {"late from before", 0, MP_EVIDENCE_CLOCK, NULL, false},
        [MP_CAUSE_UNKNOWN] = {"unknown", 0, 0, NULL, false},
    };
    return &kinds[cause];
}
_Static_assert(1 << MP_PHASES < MP_EVIDENCE_TOKENS, "phases and evidence are bits of one number");

const char *mp_cause_name(enum mp_cause cause) {
    return (unsigned)cause < MP_CAUSES ? mp_cause_kind(cause)->name : "?";
}

enum mp_cause mp_cause_of_work(int phase) {
    for (int c = 0; c < MP_CAUSES; c++)
        if (mp_cause_kind((enum mp_cause)c)->work >> phase & 1)
            return (enum mp_cause)c;
    return MP_CAUSE_SLOW;
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
    return MP_ORDER(a->value, b->value);
}

static double weighted_median(struct weighted item[], int count) {
    double all = 0, sum = 0;
    MP_SORT(item, count, compare_weighted);
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
    return MP_ORDER(a->kind, b->kind) ?: MP_ORDER(a->rank, b->rank) ?: MP_ORDER(a->node, b->node);
}

struct work {
    struct row *row;       /* [spans] */
    double *value;         /* [spans + ranks] */
    struct weighted *pair; /* [spans] */
    double *by_rank;       /* [ranks] */
    int *node;             /* [spans] */
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
    int layer = mp_recorded_layer(span_of(causes, node));
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

static bool is_alone(const struct mp_graph *graph, int node) {
    return mp_graph_is_edge(graph, node) ||
           (graph->group[graph->node[node].group].count == 1 &&
            graph->kind[graph->group[graph->node[node].group].kind].direction != MP_NO_DIRECTION);
}

static const struct mp_usual *usual_of(const struct mp_causes *causes, int node) {
    const struct mp_graph *graph = causes->graph;
    return &causes->usual[(size_t)graph->group[graph->node[node].group].kind *
                              (size_t)graph->times.ranks +
                          (size_t)graph->node[node].rank];
}

/* Medians over `node[nodes]` and `absent` that did nothing. */
static void find_medians(const struct mp_causes *causes, double value[], const int node[],
                         int nodes, int absent, struct mp_reference *reference) {
    double *const median_of[] = {&reference->own, &reference->tokens,   &reference->usual,
                                 &reference->gap, &reference->transfer, &reference->layer_tokens};
    for (int f = 0; f < 6; f++) {
        int count = 0;
        for (int i = 0; i < nodes; i++) {
            const struct mp_graph_node *own = &causes->graph->node[node[i]];
            const double values[] = {own->own,
                                     (double)span_of(causes, node[i])->tokens,
                                     usual_of(causes, node[i])->own,
                                     own->gap,
                                     own->transfer,
                                     own_layer_tokens(causes, node[i])};
            value[count++] = values[f];
        }
        for (int a = 0; a < absent && f < 3; a++)
            value[count++] = 0;
        *median_of[f] = mp_lower_median(value, count);
    }
}

static struct mp_reference *reference_at(const struct mp_causes *causes, int node) {
    return &causes->reference[causes->graph->node[node].group];
}

/* Nodes of a phase and direction (-1: any) that nobody does beside, and all of that phase and
 * direction, alone or not: returns how many those are. */
static int list_nodes(const struct mp_causes *causes, int phase, int direction, int node[],
                      bool *any_alone) {
    int nodes = 0;
    *any_alone = false;
    for (size_t n = 0; n < causes->graph->times.spans; n++) {
        const struct mp_recorded_span *span = span_of(causes, (int)n);
        if (span->phase != phase || (direction >= 0 && span->direction != direction))
            continue;
        *any_alone = *any_alone || is_alone(causes->graph, (int)n);
        node[nodes++] = (int)n;
    }
    return nodes;
}

/* A stage of one rank is held against all stages. */
static void find_common(struct mp_causes *causes, struct work *work, int phase, int direction) {
    struct mp_reference common = {.alone = true};
    bool any_alone;
    int nodes = list_nodes(causes, phase, direction, work->node, &any_alone);
    if (!any_alone || phase == MP_PHASE_SEND || phase == MP_PHASE_RECV)
        return;
    find_medians(causes, work->value, work->node, nodes, 0, &common);
    for (int i = 0; i < nodes; i++) {
        struct mp_reference *reference = reference_at(causes, work->node[i]);
        common.mean_tokens = reference->mean_tokens;
        if (is_alone(causes->graph, work->node[i]))
            *reference = common;
    }
}

/* Both ends of an edge are held against all of their kind. */
static void find_edges(struct mp_causes *causes, struct work *work) {
    struct mp_reference sends, receives;
    bool any;
    int nodes = list_nodes(causes, MP_PHASE_SEND, -1, work->node, &any);
    find_medians(causes, work->value, work->node, nodes, 0, &sends);
    nodes = list_nodes(causes, MP_PHASE_RECV, -1, work->node, &any);
    find_medians(causes, work->value, work->node, nodes, 0, &receives);
    for (int i = 0; i < nodes; i++) {
        struct mp_reference *reference = reference_at(causes, work->node[i]);
        reference->own = sends.own;
        reference->usual = sends.usual;
        reference->transfer = receives.transfer;
    }
}

static void find_references(struct mp_causes *causes, struct work *work) {
    const struct mp_graph *graph = causes->graph;
    for (int g = 0; g < graph->groups; g++) {
        const struct mp_graph_group *group = &graph->group[g];
        find_medians(causes, work->value, &graph->member[group->first], group->count, group->absent,
                     &causes->reference[g]);
        causes->reference[g].mean_tokens = mean_tokens(causes, group);
    }
    find_edges(causes, work);
    for (int phase = 0; phase < PHASES && graph->pipelines > 1; phase++)
        for (int direction = 0; direction < DIRECTIONS; direction++)
            find_common(causes, work, phase, direction);
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
    MP_SORT(work->row, graph->times.spans, compare_rows);
    find_slopes(causes, work);
    find_usual(causes, work);
    find_references(causes, work);
}

static int find(struct mp_causes *causes, struct mp_arena *working, struct mp_error *error) {
    const struct mp_graph *graph = causes->graph;
    const size_t spans = graph->times.spans + 1, ranks = (size_t)graph->times.ranks;
    struct work work;
    MP_TAKE_EACH(working, spans, work.row, work.pair, work.node);
    MP_TAKE(working, work.value, spans + ranks);
    MP_TAKE(working, work.by_rank, ranks);
    MP_TAKE(&causes->memory, causes->usual, ((size_t)graph->kinds + 1) * ranks);
    MP_TAKE(&causes->memory, causes->reference, graph->groups + 1);
    MP_TAKE(&causes->memory, causes->slope, PHASES * DIRECTIONS);
    MP_TAKE(&causes->memory, causes->layer_tokens,
            (size_t)graph->times.iterations * (size_t)graph->layers * ranks + 1);
    MP_TRY(mp_arena_check(working, error));
    MP_TRY(mp_arena_check(&causes->memory, error));
    fill(causes, &work);
    return MP_OK;
}

int mp_causes_find(const struct mp_graph *graph, struct mp_causes *causes, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena working = {0};
    *causes = (struct mp_causes){.graph = graph};
    int code = find(causes, &working, error);
    if (code)
        mp_causes_destroy(causes);
    return code;
}

void mp_causes_destroy(struct mp_causes *causes) {
    mp_arena_release(&causes->memory);
    *causes = (struct mp_causes){0};
}

/* ---- splitting ---- */

static double between(double value, double least, double most) {
    return value < least ? least : value > most ? most : value;
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
    if (mp_cause_of_work(span->phase) != MP_CAUSE_SLOW || mean < 0)
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

void mp_causes_even(const struct mp_causes *causes, int node, struct mp_graph_seconds *now) {
    const struct mp_graph_node *own = &causes->graph->node[node];
    const struct mp_reference *reference = &causes->reference[own->group];
    double part[MP_CAUSES];
    mp_causes_split_transfer(causes, node, reference, fmax(0, own->transfer - reference->transfer),
                             part);
    now->own -= mp_causes_surplus(causes, node);
    now->transfer -= part[MP_CAUSE_ROUTING];
}

void mp_causes_split(const struct mp_causes *causes, int node, const struct mp_reference *reference,
                     double seconds, double part[MP_CAUSES]) {
    const struct mp_recorded_span *span = span_of(causes, node);
    const struct mp_usual *usual = usual_of(causes, node);
    for (int c = 0; c < MP_CAUSES; c++)
        part[c] = 0;
    enum mp_cause class = mp_cause_of_work(span->phase);
    if (class != MP_CAUSE_SLOW) {
        part[class] = seconds;
        return;
    }
    if ((mp_phase_of_experts(span->phase) && !causes->knows_tokens) ||
        (reference->alone && span->layer < 0)) {
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
