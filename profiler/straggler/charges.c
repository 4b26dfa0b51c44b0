/* From charges to causes: see analysis.h. */
#include <math.h>
#include <string.h>

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"

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

double search_stage_surplus(const struct analysis *analysis, int node,
                            const struct mp_reference *reference) {
    const struct mp_graph *graph = analysis->graph;
    return graph->pipelines == 1 || mp_graph_is_edge(graph, node) ||
                   mp_cause_of_work(graph->times.span[node].phase) != MP_CAUSE_SLOW
               ? 0
               : reference->own - graph->ideal[node].own;
}

void search_split_work(const struct analysis *analysis, int node,
                       const struct mp_reference *reference, double seconds, bool staged,
                       double part[MP_CAUSES]) {
    const double *collected = analysis->input->collected;
    double collecting = collected ? fmin(collected[node], seconds) : 0;
    double stage = staged ? fmax(0, search_stage_surplus(analysis, node, reference)) : 0;
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
        search_split_work(analysis, charge->node, &reference, longer, charge->staged, part);
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

/* What is made of a charge, which is this rank's in this iteration, and of its parts. */
typedef void take_charge(struct search *search, const struct mp_charge *charge, int iteration,
                         int rank, double part[MP_CAUSES]);

static void take_charges(struct search *search, take_charge *take) {
    const struct analysis *analysis = search->analysis;
    double part[MP_CAUSES];
    for (size_t i = 0; i < analysis->waits.charges; i++) {
        const struct mp_charge *charge = &analysis->waits.charge[i];
        const struct mp_graph_node *node = &analysis->graph->node[charge->node];
        split_charge(analysis, charge, part);
        take(search, charge, analysis->graph->group[node->group].iteration, node->rank, part);
    }
}

static int victim_of(const struct search *search, const struct mp_charge *charge) {
    return search->analysis->graph->node[charge->victim].rank;
}

static void add_charge(struct search *search, const struct mp_charge *charge, int iteration,
                       int rank, double part[MP_CAUSES]) {
    struct mp_straggler_rank *ranks = search->analysis->out->rank;
    const double seconds = charge->seconds / search->iterations;
    for (int c = 0; c < MP_CAUSES; c++)
        *caused_at(search, iteration, rank, c) += part[c];
    *(charge->propagated ? &ranks[rank].propagated : &ranks[rank].direct) += seconds;
    ranks[victim_of(search, charge)].suffered += seconds;
}

void search_add_charges(struct search *search) {
    take_charges(search, add_charge);
}

/* ---- what is always there though no operation always has it ---- */

enum mp_cause search_promoted_to(const struct search *search, int rank) {
    return search->late[rank] > 0 ? MP_CAUSE_STOLEN : MP_CAUSE_SLOW;
}

/* Moves a part of what a rank caused in an iteration there. */
static void promote_part(struct search *search, int iteration, int rank, enum mp_cause cause,
                         double part) {
    double *caused = caused_at(search, iteration, rank, (int)cause);
    double *promoted = promoted_at(search, iteration, rank) + cause;
    *caused_at(search, iteration, rank, (int)search_promoted_to(search, rank)) += part * *caused;
    *caused *= 1 - part;
    *promoted += (1 - *promoted) * part;
}

void search_apply_promotion(const struct search *search, int iteration, int rank,
                            double part[MP_CAUSES]) {
    const double *promoted = promoted_at(search, iteration, rank);
    for (int c = 0; c < MP_CAUSES; c++) {
        double moved = promoted[c] * part[c];
        part[c] -= moved;
        part[search_promoted_to(search, rank)] += moved;
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

void search_promote(struct search *search) {
    if (!search->analysis->causes.knows_usual)
        return;
    find_off_core(search);
    for (int r = 0; r < search->ranks; r++)
        promote_off_core(search, r);
    promote_always_late(search);
}

static void add_place(struct search *search, const struct mp_charge *charge, int iteration,
                      int rank, double part[MP_CAUSES]) {
    const struct mp_graph *graph = search->analysis->graph;
    const size_t kind = (size_t)graph->group[graph->node[charge->node].group].kind;
    search_apply_promotion(search, iteration, rank, part);
    for (int c = 0; c < MP_CAUSES; c++)
        search->where[((size_t)rank * MP_CAUSES + (size_t)c) * (size_t)search->kinds + kind] +=
            part[c];
    search->victim[(size_t)rank * (size_t)search->ranks + (size_t)victim_of(search, charge)] +=
        charge->seconds;
}

void search_add_places(struct search *search) {
    take_charges(search, add_place);
}
