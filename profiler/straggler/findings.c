/* From causes to findings. */
#include <math.h>
#include <stdlib.h>

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"
#include "reference/base/order.h"

/* Of an iteration's time: what one-off delays are at least, and what counts as having mattered. */
#define EVENT 0.10
#define MATTERED 0.01
/* Events are worth a finding from such a share of all time, or if one is such a part of an
 * iteration. */
#define EVENTS_LEAST 0.01
#define EVENT_LARGE 0.5
#define FORGETTING 0.9 /* weight of an iteration against the next one */

enum { FINDINGS_LIMIT = 64 };

/* ---- ranks ---- */

/* Seconds of a node beyond its group's reference, by cause; for tokens, beyond the ranks' mean:
 * they have to be computed somewhere. */
static void excess_of(const struct search *search, int index, double own[MP_CAUSES],
                      double transfer[MP_CAUSES], double *gap) {
    const struct analysis *analysis = search->analysis;
    const struct mp_graph_node *node = &analysis->graph->node[index];
    const struct mp_reference *reference = &analysis->causes.reference[node->group];
    search_split_work(analysis, index, reference, fmax(0, node->own - reference->own), false, own);
    own[MP_CAUSE_STAGE] = search_stage_surplus(analysis, index, reference);
    mp_causes_split_transfer(&analysis->causes, index, reference,
                             fmax(0, node->transfer - reference->transfer), transfer);
    own[MP_CAUSE_ROUTING] = fmax(0, mp_causes_surplus(&analysis->causes, index));
    *gap = fmax(0, node->gap - reference->gap);
}

/* What a rank always takes longer is taken from its medians: a mean of what lies above the others'
 * would count noise. */
static void add_usual(const struct search *search, struct mp_straggler_rank rank[]) {
    const struct mp_causes *causes = &search->analysis->causes;
    const struct mp_graph *graph = search->analysis->graph;
    double part[MP_CAUSES];
    for (int g = 0; g < graph->groups && causes->knows_usual; g++) {
        const struct mp_graph_group *group = &graph->group[g];
        for (int m = 0; m < group->count; m++) {
            int n = graph->member[group->first + m];
            const struct mp_usual *usual =
                &causes->usual[(size_t)group->kind * (size_t)search->ranks +
                               (size_t)graph->node[n].rank];
            double longer = usual->own - causes->reference[g].usual;
            struct mp_reference reference = causes->reference[g];
            reference.tokens = -1;
            mp_causes_split(causes, n, &reference, fmax(0, longer), part);
            if (search->late[graph->node[n].rank] < LATE_WORK)
                rank[graph->node[n].rank].longer[MP_CAUSE_SLOW] +=
                    part[MP_CAUSE_SLOW] / search->iterations;
        }
    }
}

static void add_nodes(const struct search *search, struct mp_straggler_rank rank[]) {
    const struct mp_graph *graph = search->analysis->graph;
    double own[MP_CAUSES], transfer[MP_CAUSES], gap;
    for (size_t n = 0; n < graph->times.spans; n++) {
        const struct mp_graph_node *node = &graph->node[n];
        struct mp_straggler_rank *of = &rank[node->rank];
        of->own += (node->own + node->gap) / search->iterations;
        of->gaps += node->gap / search->iterations;
        excess_of(search, (int)n, own, transfer, &gap);
        own[MP_CAUSE_SLOW] = search->late[node->rank] >= LATE_WORK ? own[MP_CAUSE_SLOW] : 0;
        own[MP_CAUSE_HOST] += gap;
        for (int c = 0; c < MP_CAUSES; c++)
            own[c] += transfer[c];
        search_apply_promotion(search, graph->group[node->group].iteration, node->rank, own);
        for (int c = 0; c < MP_CAUSES; c++)
            of->longer[c] += own[c] / search->iterations;
    }
}

static double rank_tokens(const struct search *search, int rank, int layer) {
    const struct analysis *analysis = search->analysis;
    double sum = 0;
    bool known = false;
    for (int i = 0; i < search->iterations; i++)
        for (int l = 0; l < analysis->graph->layers; l++) {
            double tokens = analysis_tokens(analysis, i, l, rank);
            if (tokens < 0 || (layer >= 0 && l != layer))
                continue;
            known = true;
            sum += tokens;
        }
    return known ? sum / search->iterations : NAN;
}

static double tokens_over_mean(const struct search *search, int rank, int layer) {
    double sum = 0;
    for (int r = 0; r < search->ranks; r++)
        sum += rank_tokens(search, r, layer);
    return sum > 0 ? rank_tokens(search, rank, layer) * search->ranks / sum : NAN;
}

static int culprit_of(const struct search *search, int iteration, int cause) {
    double most = MATTERED * search->analysis->out->seconds * (search->ranks - 1);
    int culprit = -1;
    for (int r = 0; r < search->ranks; r++) {
        double sum = 0;
        for (int c = 0; c < MP_CAUSES; c++)
            sum += cause < 0 || cause == c ? *caused_at(search, iteration, r, c) : 0;
        if (sum > most) {
            most = sum;
            culprit = r;
        }
    }
    return culprit;
}

static double on_core(const struct search *search, int rank) {
    for (int i = 0; i < search->iterations; i++) {
        const struct mp_recorded_rank *own = mp_recorded_rank_at(&search->analysis->times, i, rank);
        if (!(own->cpu > 0))
            return NAN;
        search->value[i] = fmin(1, own->cpu / (own->end - own->start));
    }
    return mp_lower_median(search->value, search->iterations);
}

static void fill_ranks(struct search *search) {
    struct mp_straggler *out = search->analysis->out;
    int before = -1;
    for (int i = 0; i < search->iterations; i++) {
        int culprit = culprit_of(search, i, -1);
        if (culprit < 0)
            continue;
        out->rank[culprit].most_waited_for += 1.0 / search->iterations;
        out->culprit_changes += before >= 0 && culprit != before;
        before = culprit;
    }
    out->most_waited_for = -1;
    for (int r = 0; r < search->ranks; r++) {
        struct mp_straggler_rank *rank = &out->rank[r];
        rank->tokens = rank_tokens(search, r, -1);
        rank->on_core = on_core(search, r);
        out->waiting += rank->suffered;
        for (int i = 0; i < search->iterations; i++)
            for (int c = 0; c < MP_CAUSES; c++)
                rank->cause[c] += *caused_at(search, i, r, c) / search->iterations;
        if (rank->most_waited_for > 0 &&
            (out->most_waited_for < 0 ||
             rank->most_waited_for > out->rank[out->most_waited_for].most_waited_for))
            out->most_waited_for = r;
    }
    add_usual(search, out->rank);
    add_nodes(search, out->rank);
}

/* ---- findings ---- */

static bool is_at_fault(const struct search *search, const struct mp_straggler_finding *finding,
                        int rank) {
    return finding->stage >= 0 ? search->analysis->graph->pipeline[rank] == finding->stage
                               : finding->rank < 0 || finding->rank == rank;
}

/* Ranks that wait: all but those at fault, or every one where each is in turn. */
static int waiters(const struct search *search, int rank, int stage) {
    int count = search->ranks - (rank >= 0);
    for (int r = 0; r < search->ranks && stage >= 0; r++)
        count -= search->analysis->graph->pipeline[r] == stage;
    return count;
}

/* s of waiting per rank that waits in one iteration. */
static double in_iteration(const struct search *search, const struct mp_straggler_finding *finding,
                           int iteration) {
    double sum = 0;
    for (int r = 0; r < search->ranks; r++)
        if (is_at_fault(search, finding, r))
            sum += *caused_at(search, iteration, r, finding->cause);
    return sum / waiters(search, finding->rank, finding->stage);
}

/* Chance is 1/R. */
static double chronic_from(int ranks) {
    return fmax(0.2, fmin(3.0 / ranks, 0.5 * (1 + 1.0 / ranks)));
}

static void fill_times(const struct search *search, struct mp_straggler_finding *finding) {
    const struct mp_straggler_input *input = search->analysis->input;
    double weight = 0;
    finding->worst = -1;
    for (int i = 0; i < search->iterations; i++) {
        double waiting = in_iteration(search, finding, i);
        bool matters = waiting > finding->least;
        int culprit = matters ? culprit_of(search, i, (int)finding->cause) : -1;
        finding->seen += matters / (double)search->iterations;
        weight = FORGETTING * weight + 1;
        finding->last +=
            ((culprit >= 0 && is_at_fault(search, finding, culprit)) - finding->last) / weight;
        if (waiting > finding->worst) {
            finding->worst = waiting;
            finding->worst_iteration = input->number ? input->number[i] : i;
        }
    }
    finding->chronic =
        finding->cause != MP_CAUSE_ONE_OFF &&
        (finding->rank < 0 && finding->stage < 0 ? finding->seen >= 0.5
                                                 : finding->last >= chronic_from(search->ranks));
}

/* s of waiting charged to a kind of operation. */
static double at_kind(const struct search *search, const struct mp_straggler_finding *finding,
                      int kind) {
    double sum = 0;
    for (int r = 0; r < search->ranks; r++)
        if (is_at_fault(search, finding, r))
            sum += search->where[((size_t)r * MP_CAUSES + finding->cause) * (size_t)search->kinds +
                                 (size_t)kind];
    return sum;
}

/* Of the kinds that a place has, transfers over the edge from which most came. */
static int from_where(const struct search *search, const struct mp_straggler_finding *finding) {
    const struct mp_graph_kind *kind = search->analysis->graph->kind;
    double most = 0, here = 0;
    int from = -1;
    for (int k = 0; k < search->kinds; k++) {
        if (kind[k].channel < 0 || finding->phase != kind[k].phase)
            continue;
        here = (k > 0 && kind[k - 1].channel == kind[k].channel ? here : 0) + search->by_kind[k];
        if (here > most) {
            most = here;
            from = kind[k].channel / search->ranks;
        }
    }
    return from;
}

static void fill_place(const struct search *search, struct mp_straggler_finding *finding) {
    const struct mp_graph_kind *kind = search->analysis->graph->kind;
    double all = 0, most = -1;
    for (int k = 0; k < search->kinds; k++)
        search->by_kind[k] = at_kind(search, finding, k);
    for (int k = 0; k < search->kinds; k++) {
        double here = 0;
        for (int other = 0; other < search->kinds; other++)
            if (kind[other].phase == kind[k].phase && kind[other].layer == kind[k].layer)
                here += search->by_kind[other];
        all += search->by_kind[k];
        if (here > most) {
            most = here;
            finding->phase = kind[k].phase;
            finding->layer = kind[k].layer;
        }
    }
    finding->from = from_where(search, finding);
    finding->here = all > 0 ? most / all : 0;
}

static void fill_victim(const struct search *search, struct mp_straggler_finding *finding) {
    double most = 0, all = 0;
    finding->victim = -1;
    for (int r = 0; r < search->ranks && finding->rank >= 0; r++) {
        double waits = search->victim[(size_t)finding->rank * (size_t)search->ranks + (size_t)r];
        all += waits;
        if (waits > most) {
            most = waits;
            finding->victim = r;
        }
    }
    finding->victim_waiting = all > 0 ? finding->caused * most / all : NAN;
}

/* Whether ranks at fault began an iteration late for it. */
static bool is_late_start(const struct search *search, const struct mp_straggler_finding *finding,
                          int iteration) {
    const struct mp_recorded_between *between = search->analysis->input->between;
    if (!between || finding->cause == MP_CAUSE_BEFORE)
        return finding->cause == MP_CAUSE_BEFORE;
    between += (size_t)iteration * (size_t)search->ranks;
    return MP_ANY(r, search->ranks,
                  is_at_fault(search, finding, r) && between[r].seconds > 0 &&
                      mp_cause_of_work(between[r].phase) == finding->cause);
}

/* The run without what the finding says. */
static void fill_saved(struct search *search, struct mp_straggler_finding *finding) {
    struct mp_graph *graph = search->analysis->graph;
    double own[MP_CAUSES], transfer[MP_CAUSES], gap, sum = 0;
    mp_graph_recorded(graph, search->now);
    for (size_t n = 0; n < graph->times.spans; n++) {
        if (finding->cause == MP_CAUSE_ROUTING)
            mp_causes_even(&search->analysis->causes, (int)n, &search->now[n]);
        if (finding->cause == MP_CAUSE_STAGE)
            search->now[n].own -=
                search_stage_surplus(search->analysis, (int)n,
                                     &search->analysis->causes.reference[graph->node[n].group]);
        if (finding->cause == MP_CAUSE_ROUTING || finding->cause == MP_CAUSE_STAGE ||
            !is_at_fault(search, finding, graph->node[n].rank))
            continue;
        excess_of(search, (int)n, own, transfer, &gap);
        int iteration = graph->group[graph->node[n].group].iteration, rank = graph->node[n].rank;
        double host = promoted_at(search, iteration, rank)[MP_CAUSE_HOST];
        search_apply_promotion(search, iteration, rank, own);
        search_apply_promotion(search, iteration, rank, transfer);
        search->now[n].own -= own[finding->cause];
        search->now[n].transfer -= transfer[finding->cause];
        search->now[n].gap -= finding->cause == MP_CAUSE_HOST ? gap * (1 - host)
                              : finding->cause == search_promoted_to(search, rank) ? gap * host
                                                                                   : 0;
    }
    for (int i = 0; i < search->iterations; i++)
        sum += mp_graph_replay(graph, i, search->now, is_late_start(search, finding, i));
    finding->saved = search->replayed - sum / search->iterations;
}

/* What a rank's transfers always take longer: medians, as one delayed among many would count in a
 * mean. */
static double usual_transfers(const struct search *search, int rank) {
    const struct analysis *analysis = search->analysis;
    const struct mp_graph *graph = analysis->graph;
    double sum = 0;
    for (int g = 0; g < graph->groups; g++) {
        const struct mp_graph_group *group = &graph->group[g];
        const struct mp_usual *usual =
            &analysis->causes.usual[(size_t)group->kind * (size_t)search->ranks];
        if (!group->meets || mp_graph_member(graph, group, rank) < 0)
            continue;
        for (int m = 0; m < group->count; m++)
            search->value[m] = usual[graph->node[graph->member[group->first + m]].rank].transfer;
        double middle = graph->kind[group->kind].channel >= 0
                            ? analysis->causes.reference[g].transfer
                            : mp_lower_median(search->value, group->count);
        double longer = usual[rank].transfer - middle;
        sum += fmax(0, longer) / search->iterations;
    }
    return sum;
}

static void fill_finding(struct search *search, struct mp_straggler_finding *finding) {
    const struct mp_straggler *out = search->analysis->out;
    int at_fault = 0;
    for (int r = 0; r < search->ranks; r++)
        if (is_at_fault(search, finding, r)) {
            finding->longer += out->rank[r].longer[finding->cause];
            at_fault++;
        }
    finding->longer /= at_fault;
    fill_times(search, finding);
    fill_place(search, finding);
    fill_victim(search, finding);
    fill_saved(search, finding);
    finding->on_core = finding->cause == MP_CAUSE_STOLEN && finding->rank >= 0
                           ? out->rank[finding->rank].on_core
                           : NAN;
    finding->tokens =
        finding->rank >= 0 ? tokens_over_mean(search, finding->rank, finding->layer) : NAN;
}

static double least_waiting(const struct search *search) {
    const struct mp_straggler *out = search->analysis->out;
    return fmax(MP_STRAGGLER_LEAST * out->seconds, out->finest);
}

/* What one rank's transfers always take longer is its link; a rank whose transfers now and then
 * take longer, each time others of them, has none that is slow. */
static void name_link(struct search *search, struct mp_straggler_finding *finding) {
    if (finding->cause != MP_CAUSE_COMMUNICATION || finding->rank < 0 || !finding->chronic)
        return;
    const double usual = usual_transfers(search, finding->rank);
    if (usual < least_waiting(search))
        return;
    struct mp_straggler_rank *rank = &search->analysis->out->rank[finding->rank];
    finding->cause = MP_CAUSE_LINK;
    finding->longer = usual;
    rank->cause[MP_CAUSE_LINK] = rank->cause[MP_CAUSE_COMMUNICATION];
    rank->longer[MP_CAUSE_LINK] = rank->longer[MP_CAUSE_COMMUNICATION];
    rank->cause[MP_CAUSE_COMMUNICATION] = rank->longer[MP_CAUSE_COMMUNICATION] = 0;
}

/* `least`: what an iteration counts from. */
static void add_finding(struct search *search, int rank, int stage, int cause, double waiting,
                        double least) {
    struct mp_straggler *out = search->analysis->out;
    if (out->findings == FINDINGS_LIMIT)
        return;
    out->finding[out->findings++] =
        (struct mp_straggler_finding){.cause = (enum mp_cause)cause,
                                      .rank = rank,
                                      .stage = stage,
                                      .from = -1,
                                      .caused = waiting * waiters(search, rank, stage),
                                      .waiting = waiting,
                                      .least = least};
}

/* Delays of a rank that stand out of all the run's, iteration by iteration: `limit` of a cause. */
static double limit_of_events(struct search *search, int cause) {
    const struct mp_straggler *out = search->analysis->out;
    int count = search->iterations * search->ranks;
    for (int i = 0; i < count; i++)
        search->value[i] =
            *caused_at(search, i / search->ranks, i % search->ranks, cause) / (search->ranks - 1);
    double middle = mp_lower_median(search->value, count);
    for (int i = 0; i < count; i++)
        search->value[i] = fabs(search->value[i] - middle);
    return fmax(fmax(EVENT * out->seconds, out->finest),
                middle + 6 * 1.4826 * mp_lower_median(search->value, count));
}

static bool find_events(struct search *search, int rank, int cause, double limit) {
    const double seconds = search->analysis->out->seconds;
    double sum = 0, most = 0;
    for (int i = 0; i < search->iterations; i++) {
        double waiting = *caused_at(search, i, rank, cause) / (search->ranks - 1);
        sum += waiting > limit ? waiting : 0;
        most = fmax(most, waiting);
    }
    sum /= search->iterations;
    bool found = sum >= EVENTS_LEAST * seconds || (sum > 0 && most >= EVENT_LARGE * seconds);
    if (found)
        add_finding(search, rank, -1, cause, sum, limit);
    return found;
}

/* A rank is named where it stands out of the others: on a noisy machine each is late in turn. */
static void find_steady(struct search *search, int cause) {
    const struct mp_straggler *out = search->analysis->out;
    const bool events = mp_cause_kind((enum mp_cause)cause)->occasional;
    double least = least_waiting(search), limit = events ? limit_of_events(search, cause) : 0;
    double unnamed = 0, mattered = MATTERED * out->seconds;
    for (int r = 0; r < search->ranks; r++)
        search->value[r] = out->rank[r].cause[cause] / (search->ranks - 1);
    double normal = cause == MP_CAUSE_SLOW ? 0 : mp_lower_median(search->value, search->ranks);
    for (int r = 0; r < search->ranks; r++) {
        double waiting = out->rank[r].cause[cause] / (search->ranks - 1);
        if (cause != MP_CAUSE_ONE_OFF && waiting - normal >= least)
            add_finding(search, r, -1, cause, waiting, mattered);
        else if (!events || !find_events(search, r, cause, limit))
            unnamed += out->rank[r].cause[cause] / search->ranks;
    }
    if (unnamed >= least && cause != MP_CAUSE_SLOW && cause != MP_CAUSE_ONE_OFF)
        add_finding(search, -1, -1, cause, unnamed, mattered);
}

/* Ranks of a stage are late together. */
static void find_stages(struct search *search) {
    const struct mp_graph *graph = search->analysis->graph;
    for (int stage = 0; stage < graph->pipelines && graph->pipelines > 1; stage++) {
        double waiting = 0;
        for (int r = 0; r < search->ranks; r++)
            if (graph->pipeline[r] == stage)
                waiting += search->analysis->out->rank[r].cause[MP_CAUSE_STAGE] /
                           waiters(search, -1, stage);
        if (waiting >= least_waiting(search))
            add_finding(search, -1, stage, MP_CAUSE_STAGE, waiting,
                        MATTERED * search->analysis->out->seconds);
    }
}

static int compare_findings(const void *left, const void *right) {
    const struct mp_straggler_finding *a = left, *b = right;
    return MP_ORDER(b->waiting, a->waiting) ?: MP_ORDER(a->rank, b->rank)
           ?: MP_ORDER(a->cause, b->cause);
}

static int allocate(struct search *search, struct mp_arena *working, struct mp_error *error) {
    struct mp_straggler *out = search->analysis->out;
    size_t ranks = (size_t)search->ranks, cells = (size_t)search->iterations * ranks;
    MP_TAKE_EACH(working, cells * MP_CAUSES, search->caused, search->promoted);
    MP_TAKE_EACH(working, cells, search->off_core, search->value);
    MP_TAKE_EACH(working, ranks, search->usual, search->late);
    MP_TAKE(working, search->where, ranks * MP_CAUSES * (size_t)search->kinds);
    MP_TAKE(working, search->victim, ranks * ranks);
    MP_TAKE(working, search->by_kind, search->kinds + 1);
    MP_TAKE(working, search->now, search->analysis->graph->times.spans);
    MP_TAKE(&out->memory, out->rank, ranks);
    MP_TAKE(&out->memory, out->finding, FINDINGS_LIMIT);
    MP_TRY(mp_arena_check(&out->memory, error));
    return mp_arena_check(working, error);
}

static void find_all(struct search *search) {
    struct analysis *analysis = search->analysis;
    struct mp_straggler *out = analysis->out;
    search_add_charges(search);
    search_promote(search);
    search_add_places(search);
    fill_ranks(search);
    out->bubble = analysis->waits.bubble / search->iterations;
    mp_graph_recorded(analysis->graph, search->now);
    for (int i = 0; i < search->iterations; i++)
        search->replayed +=
            mp_graph_replay(analysis->graph, i, search->now, false) / search->iterations;
    for (int c = 0; c < MP_CAUSES; c++)
        if (c == MP_CAUSE_STAGE)
            find_stages(search);
        else
            find_steady(search, c);
    for (int f = 0; f < out->findings; f++) {
        fill_finding(search, &out->finding[f]);
        name_link(search, &out->finding[f]);
    }
    MP_SORT(out->finding, out->findings, compare_findings);
}

int analysis_find(struct analysis *analysis, struct mp_error *error) {
    struct search search = {.analysis = analysis,
                            .ranks = analysis->graph->times.ranks,
                            .iterations = analysis->graph->times.iterations,
                            .kinds = analysis->graph->kinds};
    MP_AUTO(arena) struct mp_arena working = {0};
    MP_TRY(allocate(&search, &working, error));
    find_all(&search);
    return MP_OK;
}
