/* From charges to findings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"

/* Of an iteration's time: what one-off delays are at least, and what counts as having mattered. */
#define EVENT 0.10
#define MATTERED 0.01
/* Events are worth a finding from such a share of all time, or if one is such a part of an
 * iteration. */
#define EVENTS_LEAST 0.01
#define EVENT_LARGE 0.5
#define FORGETTING 0.9 /* weight of an iteration against the next one */

enum { FINDINGS_LIMIT = 64 };

struct search {
    struct analysis *analysis;
    int ranks, iterations, kinds;
    double *caused;   /* [iterations][ranks][causes] s of waiting */
    double *promoted; /* [iterations][ranks][causes] part of the waiting that is a slow rank's */
    double *off_core; /* [iterations][ranks] s without a core, beyond the others'; 0: not known */
    int *late;        /* [ranks] causes of `late` that are no core; 0: it has one, or not known */
    double *usual;    /* [ranks] */
    double *where;    /* [ranks][causes][kinds] s of waiting */
    double *victim;   /* [ranks at fault][ranks that wait] s */
    double *value;    /* [iterations * ranks] */
    double *by_kind;  /* [kinds] */
    struct mp_graph_seconds *now; /* [spans] */
    double replayed;
};

static double *caused_at(const struct search *search, int iteration, int rank, int cause) {
    return &search->caused[((size_t)iteration * (size_t)search->ranks + (size_t)rank) * MP_CAUSES +
                           (size_t)cause];
}

static double *promoted_at(const struct search *search, int iteration, int rank) {
    return &search
                ->promoted[((size_t)iteration * (size_t)search->ranks + (size_t)rank) * MP_CAUSES];
}

static double *off_core_at(const struct search *search, int iteration, int rank) {
    return &search->off_core[(size_t)iteration * (size_t)search->ranks + (size_t)rank];
}

/* ---- charges by cause ---- */

/* What the span at fault is held against: the victim's in the same operation, where it was the
 * victim that waited for it. */
static struct mp_reference reference_of(const struct analysis *analysis,
                                        const struct mp_charge *charge) {
    const struct mp_graph *graph = analysis->graph;
    int group = graph->node[charge->node].group;
    return charge->propagated || charge->staged
               ? analysis->causes.reference[group]
               : mp_causes_against(&analysis->causes, group, graph->node[charge->victim].rank);
}

/* How much longer a node works as its stage of a pipeline has more to do than the others; negative:
 * less. */
static double stage_surplus(const struct analysis *analysis, int node,
                            const struct mp_reference *reference) {
    const struct mp_graph *graph = analysis->graph;
    return graph->pipelines == 1 || mp_graph_is_edge(graph, node) ||
                   mp_cause_of_work(graph->times.span[node].phase) != MP_CAUSE_SLOW
               ? 0
               : reference->own - graph->ideal[node].own;
}

/* part[MP_CAUSES] of `seconds` of longer work: what an interpreter collected meanwhile, what its
 * stage has to do, and the rest. */
static void split_work(const struct analysis *analysis, int node,
                       const struct mp_reference *reference, double seconds, bool staged,
                       double part[MP_CAUSES]) {
    const double *collected = analysis->input->collected;
    double collecting = collected ? fmin(collected[node], seconds) : 0;
    double stage = staged ? fmax(0, stage_surplus(analysis, node, reference)) : 0;
    stage = fmin(stage, seconds - collecting);
    mp_causes_split(&analysis->causes, node, reference, seconds - collecting - stage, part);
    part[MP_CAUSE_COLLECT] += collecting;
    part[MP_CAUSE_STAGE] += stage;
}

/* Why a rank began an iteration `seconds` late. */
static enum mp_cause cause_of_start(const struct analysis *analysis, int node, double seconds) {
    const struct mp_graph *graph = analysis->graph;
    const struct mp_recorded_between *between = analysis->input->between;
    if (analysis->out->clock_free)
        return MP_CAUSE_UNKNOWN;
    if (!between)
        return MP_CAUSE_BEFORE;
    between +=
        (size_t)graph->group[graph->node[node].group].iteration * (size_t)graph->times.ranks +
        (size_t)graph->node[node].rank;
    enum mp_cause cause = mp_cause_of_work(between->phase);
    return between->seconds >= 0.5 * seconds && mp_cause_kind(cause)->evidence ? cause
                                                                               : MP_CAUSE_BEFORE;
}

/* part[MP_CAUSES] of a charge, which add up to it. */
static void split_charge(const struct analysis *analysis, const struct mp_charge *charge,
                         double part[MP_CAUSES]) {
    const struct mp_graph_node *node = &analysis->graph->node[charge->node];
    const struct mp_graph_seconds *ideal = &analysis->graph->ideal[charge->node];
    struct mp_reference reference = reference_of(analysis, charge);
    double longer = charge->kind == MP_CHARGE_WORK
                        ? node->own - (charge->staged ? ideal->own : reference.own)
                        : node->transfer - (charge->staged ? ideal->transfer : reference.transfer);
    longer = longer > 0 ? longer : charge->seconds;
    memset(part, 0, MP_CAUSES * sizeof *part);
    if (charge->kind == MP_CHARGE_WORK)
        split_work(analysis, charge->node, &reference, longer, charge->staged, part);
    else if (charge->kind == MP_CHARGE_GAP)
        part[MP_CAUSE_HOST] = longer;
    else if (charge->kind == MP_CHARGE_START)
        part[cause_of_start(analysis, charge->node, longer)] = longer;
    else if (analysis->out->clock_free)
        part[MP_CAUSE_UNKNOWN] = longer;
    else
        mp_causes_split_transfer(&analysis->causes, charge->node, &reference, longer, part);
    for (int c = 0; c < MP_CAUSES; c++)
        part[c] *= charge->seconds / longer;
}

static void add_charges(struct search *search) {
    const struct analysis *analysis = search->analysis;
    const struct mp_graph *graph = analysis->graph;
    double part[MP_CAUSES];
    for (size_t i = 0; i < analysis->waits.charges; i++) {
        const struct mp_charge *charge = &analysis->waits.charge[i];
        const struct mp_graph_node *node = &graph->node[charge->node];
        struct mp_straggler_rank *rank = &analysis->out->rank[node->rank];
        split_charge(analysis, charge, part);
        for (int c = 0; c < MP_CAUSES; c++)
            *caused_at(search, graph->group[node->group].iteration, node->rank, c) += part[c];
        *(charge->propagated ? &rank->propagated : &rank->direct) +=
            charge->seconds / search->iterations;
        analysis->out->rank[graph->node[charge->victim].rank].suffered +=
            charge->seconds / search->iterations;
    }
}

/* ---- what is always there though no operation always has it ---- */

/* What moves: to its being slow, or to its having no core. */
static enum mp_cause promoted_to(const struct search *search, int rank) {
    return search->late[rank] > 0 ? MP_CAUSE_STOLEN : MP_CAUSE_SLOW;
}

/* Moves a part of what a rank caused in an iteration there. */
static void promote_part(struct search *search, int iteration, int rank, enum mp_cause cause,
                         double part) {
    double *caused = caused_at(search, iteration, rank, (int)cause);
    double *promoted = promoted_at(search, iteration, rank) + cause;
    *caused_at(search, iteration, rank, (int)promoted_to(search, rank)) += part * *caused;
    *caused *= 1 - part;
    *promoted += (1 - *promoted) * part;
}

static void apply_promotion(const struct search *search, int iteration, int rank,
                            double part[MP_CAUSES]) {
    const double *promoted = promoted_at(search, iteration, rank);
    for (int c = 0; c < MP_CAUSES; c++) {
        double moved = promoted[c] * part[c];
        part[c] -= moved;
        part[promoted_to(search, rank)] += moved;
    }
}

/* Seconds of an iteration that a rank had no core while it would have needed one: who waits for
 * others, or for a disk, gives its core away. */
static double off_core(const struct search *search, int iteration, int rank) {
    const struct analysis *analysis = search->analysis;
    const struct mp_recorded_rank *own = mp_recorded_rank_at(&analysis->times, iteration, rank);
    double without = 0;
    for (size_t s = own->first; s < own->first + (size_t)own->count; s++) {
        const struct mp_recorded_span *span = &analysis->times.span[s];
        const bool reads = span->phase == MP_PHASE_DATA || span->phase == MP_PHASE_CHECKPOINT;
        without += reads ? span->end - span->start : analysis->waits.wait[s];
    }
    return own->cpu > 0 ? fmax(0, own->end - own->start - own->cpu - without) : NAN;
}

/* The same beyond the ranks' median. */
static void find_off_core(struct search *search) {
    for (int i = 0; i < search->iterations; i++) {
        bool known = true;
        for (int r = 0; r < search->ranks; r++) {
            search->value[r] = *off_core_at(search, i, r) = off_core(search, i, r);
            known = known && !isnan(search->value[r]);
        }
        double normal = known ? mp_lower_median(search->value, search->ranks) : 0;
        for (int r = 0; r < search->ranks; r++)
            *off_core_at(search, i, r) = known ? fmax(0, *off_core_at(search, i, r) - normal) : 0;
    }
}

/* What a rank without a core seems to be late by: its work, and what waits for a turn. */
enum { LATE_ONCE = 1, LATE_WORK = 2, LATE = 4 };
static const enum mp_cause late[LATE] = {MP_CAUSE_ONE_OFF, MP_CAUSE_SLOW, MP_CAUSE_COMMUNICATION,
                                         MP_CAUSE_BEFORE};

/* s of waiting per other rank by the first of these. */
static double late_at(const struct search *search, int iteration, int rank, int causes) {
    double waiting = 0;
    for (int c = 0; c < causes; c++)
        waiting += *caused_at(search, iteration, rank, (int)late[c]) / (search->ranks - 1);
    return waiting;
}

/* By how many of `late` a rank is that has to share its core, if in most iterations that explains
 * most of them: all, its work only, or what is not usual of it; 0: it has a core. */
static int late_without_core(const struct search *search, int rank) {
    static const int tries[] = {LATE, LATE_WORK, LATE_ONCE};
    double least = MP_STRAGGLER_LEAST * search->analysis->out->seconds;
    for (size_t t = 0; t < sizeof tries / sizeof *tries; t++) {
        bool seems = false;
        for (int i = 0; i < search->iterations; i++) {
            double late_by = late_at(search, i, rank, tries[t]),
                   off = *off_core_at(search, i, rank);
            seems = seems || late_by > 0;
            search->value[i] = off >= 0.8 * late_by ? off : 0;
        }
        if (seems && mp_lower_median(search->value, search->iterations) >= least)
            return tries[t];
    }
    return 0;
}

/* What is left without a core when these are explained was taken from the host's part. */
static void promote_off_core(struct search *search, int rank) {
    const int causes = search->late[rank] = late_without_core(search, rank);
    for (int i = 0; i < search->iterations && causes > 0; i++) {
        double off = *off_core_at(search, i, rank), waiting = late_at(search, i, rank, causes);
        double host = *caused_at(search, i, rank, MP_CAUSE_HOST) / (search->ranks - 1);
        for (int c = 0; c < causes; c++)
            promote_part(search, i, rank, late[c], waiting > 0 ? fmin(1, off / waiting) : 0);
        if (off > waiting && host > 0)
            promote_part(search, i, rank, MP_CAUSE_HOST, fmin(1, (off - waiting) / host));
    }
}

static double median_one_off(struct search *search, int rank) {
    for (int i = 0; i < search->iterations; i++)
        search->value[i] = *caused_at(search, i, rank, MP_CAUSE_ONE_OFF) / (search->ranks - 1);
    return mp_lower_median(search->value, search->iterations);
}

/* Late in every iteration, though now in this operation and now in that one. */
static void promote_always_late(struct search *search) {
    for (int r = 0; r < search->ranks; r++)
        search->usual[r] = median_one_off(search, r);
    memcpy(search->value, search->usual, (size_t)search->ranks * sizeof *search->value);
    double normal = mp_lower_median(search->value, search->ranks);
    for (int r = 0; r < search->ranks; r++) {
        double always = search->usual[r] - normal;
        if (always < MP_STRAGGLER_LEAST * search->analysis->out->seconds)
            continue;
        for (int i = 0; i < search->iterations; i++) {
            double once = *caused_at(search, i, r, MP_CAUSE_ONE_OFF);
            if (once > 0)
                promote_part(search, i, r, MP_CAUSE_ONE_OFF,
                             fmin(1, always * (search->ranks - 1) / once));
        }
    }
}

static void promote(struct search *search) {
    if (!search->analysis->causes.knows_usual)
        return;
    find_off_core(search);
    for (int r = 0; r < search->ranks; r++)
        promote_off_core(search, r);
    promote_always_late(search);
}

static void add_places(struct search *search) {
    const struct analysis *analysis = search->analysis;
    const struct mp_graph *graph = analysis->graph;
    double part[MP_CAUSES];
    for (size_t i = 0; i < analysis->waits.charges; i++) {
        const struct mp_charge *charge = &analysis->waits.charge[i];
        const struct mp_graph_node *node = &graph->node[charge->node];
        const struct mp_graph_group *group = &graph->group[node->group];
        split_charge(analysis, charge, part);
        apply_promotion(search, group->iteration, node->rank, part);
        for (int c = 0; c < MP_CAUSES; c++)
            search->where[((size_t)node->rank * MP_CAUSES + (size_t)c) * (size_t)search->kinds +
                          (size_t)group->kind] += part[c];
        search->victim[(size_t)node->rank * (size_t)search->ranks +
                       (size_t)graph->node[charge->victim].rank] += charge->seconds;
    }
}

/* ---- ranks ---- */

/* Seconds of a node beyond its group's reference, by cause; for tokens, beyond the ranks' mean:
 * they have to be computed somewhere. */
static void excess_of(const struct search *search, int index, double own[MP_CAUSES],
                      double transfer[MP_CAUSES], double *gap) {
    const struct analysis *analysis = search->analysis;
    const struct mp_graph_node *node = &analysis->graph->node[index];
    const struct mp_reference *reference = &analysis->causes.reference[node->group];
    split_work(analysis, index, reference, fmax(0, node->own - reference->own), false, own);
    own[MP_CAUSE_STAGE] = stage_surplus(analysis, index, reference);
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
        excess_of(search, (int)n, own, transfer, &gap);
        own[MP_CAUSE_SLOW] = search->late[node->rank] >= LATE_WORK ? own[MP_CAUSE_SLOW] : 0;
        own[MP_CAUSE_HOST] += gap;
        for (int c = 0; c < MP_CAUSES; c++)
            own[c] += transfer[c];
        apply_promotion(search, graph->group[node->group].iteration, node->rank, own);
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

/* s of waiting per other rank in one iteration. */
static double in_iteration(const struct search *search, const struct mp_straggler_finding *finding,
                           int iteration) {
    double sum = 0;
    for (int r = 0; r < search->ranks; r++)
        if (is_at_fault(search, finding, r))
            sum += *caused_at(search, iteration, r, finding->cause);
    return sum / (search->ranks - 1);
}

/* Chance is 1/R. */
static double chronic_from(int ranks) {
    return fmax(0.2, fmin(3.0 / ranks, 0.5 * (1 + 1.0 / ranks)));
}

static void fill_times(const struct search *search, struct mp_straggler_finding *finding) {
    const struct mp_straggler_input *input = search->analysis->input;
    double seconds = search->analysis->out->seconds, weight = 0;
    finding->worst = -1;
    for (int i = 0; i < search->iterations; i++) {
        double waiting = in_iteration(search, finding, i);
        int culprit = culprit_of(search, i, (int)finding->cause);
        finding->seen += (waiting > MATTERED * seconds) / (double)search->iterations;
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

/* Every rank at the mean tokens. */
static void even_tokens(const struct search *search, int index) {
    const struct mp_causes *causes = &search->analysis->causes;
    double own[MP_CAUSES], transfer[MP_CAUSES], gap;
    excess_of(search, index, own, transfer, &gap);
    search->now[index].own -= mp_causes_surplus(causes, index);
    search->now[index].transfer -= transfer[MP_CAUSE_ROUTING];
}

/* The run without what the finding says. */
static void fill_saved(struct search *search, struct mp_straggler_finding *finding) {
    struct mp_graph *graph = search->analysis->graph;
    double own[MP_CAUSES], transfer[MP_CAUSES], gap, sum = 0;
    const bool together = finding->cause == MP_CAUSE_BEFORE ||
                          (search->analysis->input->between && finding->cause >= MP_CAUSE_DATA &&
                           finding->cause <= MP_CAUSE_COLLECT);
    mp_graph_recorded(graph, search->now);
    for (size_t n = 0; n < graph->times.spans; n++) {
        if (finding->cause == MP_CAUSE_ROUTING)
            even_tokens(search, (int)n);
        if (finding->cause == MP_CAUSE_STAGE)
            search->now[n].own -=
                stage_surplus(search->analysis, (int)n,
                              &search->analysis->causes.reference[graph->node[n].group]);
        if (finding->cause == MP_CAUSE_ROUTING || finding->cause == MP_CAUSE_STAGE ||
            !is_at_fault(search, finding, graph->node[n].rank))
            continue;
        excess_of(search, (int)n, own, transfer, &gap);
        int iteration = graph->group[graph->node[n].group].iteration, rank = graph->node[n].rank;
        double host = promoted_at(search, iteration, rank)[MP_CAUSE_HOST];
        apply_promotion(search, iteration, rank, own);
        apply_promotion(search, iteration, rank, transfer);
        search->now[n].own -= own[finding->cause];
        search->now[n].transfer -= transfer[finding->cause];
        search->now[n].gap -= finding->cause == MP_CAUSE_HOST               ? gap * (1 - host)
                              : finding->cause == promoted_to(search, rank) ? gap * host
                                                                            : 0;
    }
    for (int i = 0; i < search->iterations; i++)
        sum += mp_graph_replay(graph, i, search->now, together);
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
    if (finding->stage >= 0)
        finding->longer /= at_fault;
    fill_times(search, finding);
    if (finding->cause == MP_CAUSE_COMMUNICATION && finding->chronic && finding->rank >= 0)
        finding->longer = usual_transfers(search, finding->rank);
    fill_place(search, finding);
    fill_victim(search, finding);
    fill_saved(search, finding);
    finding->on_core = finding->cause == MP_CAUSE_STOLEN && finding->rank >= 0
                           ? out->rank[finding->rank].on_core
                           : NAN;
    finding->tokens =
        finding->rank >= 0 ? tokens_over_mean(search, finding->rank, finding->layer) : NAN;
}

/* What one rank's transfers always take longer is its link. */
static void name_link(struct search *search, struct mp_straggler_finding *finding) {
    if (finding->cause != MP_CAUSE_COMMUNICATION || finding->rank < 0 || !finding->chronic)
        return;
    struct mp_straggler_rank *rank = &search->analysis->out->rank[finding->rank];
    finding->cause = MP_CAUSE_LINK;
    rank->cause[MP_CAUSE_LINK] = rank->cause[MP_CAUSE_COMMUNICATION];
    rank->longer[MP_CAUSE_LINK] = rank->longer[MP_CAUSE_COMMUNICATION];
    rank->cause[MP_CAUSE_COMMUNICATION] = rank->longer[MP_CAUSE_COMMUNICATION] = 0;
}

static void add_finding(struct search *search, int rank, int stage, int cause, double waiting) {
    struct mp_straggler *out = search->analysis->out;
    if (out->findings == FINDINGS_LIMIT)
        return;
    out->finding[out->findings++] =
        (struct mp_straggler_finding){.cause = (enum mp_cause)cause,
                                      .rank = rank,
                                      .stage = stage,
                                      .from = -1,
                                      .caused = waiting * (search->ranks - 1),
                                      .waiting = waiting};
}

static double least_waiting(const struct search *search) {
    const struct mp_straggler *out = search->analysis->out;
    return fmax(MP_STRAGGLER_LEAST * out->seconds, out->finest);
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
        add_finding(search, rank, -1, cause, sum);
    return found;
}

/* A rank is named where it stands out of the others: on a noisy machine each is late in turn. */
static void find_steady(struct search *search, int cause) {
    const struct mp_straggler *out = search->analysis->out;
    const bool events = mp_cause_kind((enum mp_cause)cause)->occasional;
    double least = least_waiting(search), limit = events ? limit_of_events(search, cause) : 0;
    double unnamed = 0;
    for (int r = 0; r < search->ranks; r++)
        search->value[r] = out->rank[r].cause[cause] / (search->ranks - 1);
    double normal = cause == MP_CAUSE_SLOW ? 0 : mp_lower_median(search->value, search->ranks);
    for (int r = 0; r < search->ranks; r++) {
        double waiting = out->rank[r].cause[cause] / (search->ranks - 1);
        if (cause != MP_CAUSE_ONE_OFF && waiting - normal >= least)
            add_finding(search, r, -1, cause, waiting);
        else if (!events || !find_events(search, r, cause, limit))
            unnamed += waiting;
    }
    if (unnamed >= least && cause != MP_CAUSE_SLOW && cause != MP_CAUSE_ONE_OFF)
        add_finding(search, -1, -1, cause, unnamed);
}

/* Ranks of a stage are late together. */
static void find_stages(struct search *search) {
    const struct mp_graph *graph = search->analysis->graph;
    for (int stage = 0; stage < graph->pipelines && graph->pipelines > 1; stage++) {
        double waiting = 0;
        for (int r = 0; r < search->ranks; r++)
            if (graph->pipeline[r] == stage)
                waiting +=
                    search->analysis->out->rank[r].cause[MP_CAUSE_STAGE] / (search->ranks - 1);
        if (waiting >= least_waiting(search))
            add_finding(search, -1, stage, MP_CAUSE_STAGE, waiting);
    }
}

static int compare_findings(const void *left, const void *right) {
    const struct mp_straggler_finding *a = left, *b = right;
    if (a->waiting != b->waiting)
        return a->waiting < b->waiting ? 1 : -1;
    return a->rank != b->rank ? a->rank - b->rank : (int)a->cause - (int)b->cause;
}

static int allocate(struct search *search, struct mp_error *error) {
    struct mp_straggler *out = search->analysis->out;
    size_t ranks = (size_t)search->ranks, cells = (size_t)search->iterations * ranks;
    search->caused = calloc(cells * MP_CAUSES, sizeof *search->caused);
    search->promoted = calloc(cells * MP_CAUSES, sizeof *search->promoted);
    search->off_core = calloc(cells, sizeof *search->off_core);
    search->usual = calloc(ranks, sizeof *search->usual);
    search->late = calloc(ranks, sizeof *search->late);
    search->where = calloc(ranks * MP_CAUSES * (size_t)search->kinds, sizeof *search->where);
    search->victim = calloc(ranks * ranks, sizeof *search->victim);
    search->value = calloc(cells, sizeof *search->value);
    search->by_kind = calloc((size_t)search->kinds + 1, sizeof *search->by_kind);
    search->now = calloc(search->analysis->graph->times.spans, sizeof *search->now);
    out->rank = calloc(ranks, sizeof *out->rank);
    out->finding = calloc(FINDINGS_LIMIT, sizeof *out->finding);
    if (search->caused && search->promoted && search->off_core && search->usual && search->late &&
        search->where && search->victim && search->value && search->by_kind && search->now &&
        out->rank && out->finding)
        return MP_OK;
    return mp_fail(error, MP_ENOMEM, "no memory for the waiting of %d ranks", search->ranks);
}

static void find_all(struct search *search) {
    struct analysis *analysis = search->analysis;
    struct mp_straggler *out = analysis->out;
    add_charges(search);
    promote(search);
    add_places(search);
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
    qsort(out->finding, (size_t)out->findings, sizeof *out->finding, compare_findings);
}

int analysis_find(struct analysis *analysis, struct mp_error *error) {
    struct search search = {.analysis = analysis,
                            .ranks = analysis->graph->times.ranks,
                            .iterations = analysis->graph->times.iterations,
                            .kinds = analysis->graph->kinds};
    int code = allocate(&search, error);
    if (!code)
        find_all(&search);
    void *const memory[] = {search.off_core, search.usual,  search.late,   search.caused,
                            search.promoted, search.where,  search.victim, search.value,
                            search.now,      search.by_kind};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    return code;
}
