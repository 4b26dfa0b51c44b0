/* Waits and their charges: see analysis.h. */
#include "profiler/straggler/analysis.h"

#include <math.h>
#include <stdlib.h>

#include "reference/base/arena.h"

/* Most charges that a propagated wait passes on: its largest. */
enum { PASSED_ON = 8 };

/* Something that the late rank spent more (or less) than the one that waits. */
struct excess {
    double seconds;
    int node;
    int kind; /* enum mp_charge_kind, or EXCESS_WAIT */
};
enum { EXCESS_WAIT = MP_CHARGE_START + 1, EXCESS_PER_NODE = 4 };

struct walk {
    const struct mp_graph *graph;
    const int64_t *number; /* of the iterations, or NULL */
    struct mp_waits *waits;
    struct excess *excess; /* [2 EXCESS_PER_NODE (spans of the longest two ranks + 1)] */
    int count;
    int *place; /* [groups] + 1: first excess of the late rank's node in a group; 0: none */
};

/* ---- walking back ---- */

/* The last meeting up to `late` and `waiting` that both ranks left together, or of two stages
 * where the one has waited for a message of the other: their nodes in it, or -1 and -1. */
static void common_meeting(const struct walk *walk, int late, int waiting, bool staged,
                           int *late_from, int *waiting_from) {
    const struct mp_graph *graph = walk->graph;
    *late_from = *waiting_from = -1;
    for (int n = late >= 0 ? waiting : -1; n >= 0; n = graph->node[n].before) {
        const struct mp_graph_node *node = &graph->node[n];
        if (node->last < 0)
            continue;
        int other = mp_graph_member(graph, &graph->group[node->group], graph->node[late].rank);
        if (other >= 0 && other <= late &&
            (graph->node[other].last == node->last ||
             (staged && node->last == other && walk->waits->wait[n] > 0))) {
            *late_from = other;
            *waiting_from = n;
            return;
        }
    }
}

/* Adds one rank's seconds from behind `from` to its arrival at `to`, `sign` times, to what its
 * group has already or as something new. */
static void add_node(struct walk *walk, int index, double sign, const double seconds[4]) {
    static const int kinds[EXCESS_PER_NODE] = {MP_CHARGE_GAP, MP_CHARGE_WORK, MP_CHARGE_TRANSFER,
                                               EXCESS_WAIT};
    int group = walk->graph->node[index].group, first = walk->place[group] - 1;
    if (first < 0) {
        first = walk->count;
        walk->count += EXCESS_PER_NODE;
        walk->place[group] = first + 1;
        for (int k = 0; k < EXCESS_PER_NODE; k++)
            walk->excess[first + k] = (struct excess){0, index, kinds[k]};
    }
    for (int k = 0; k < EXCESS_PER_NODE; k++)
        walk->excess[first + k].seconds += sign * seconds[k];
}

/* `staged`: what is beyond the ideal. */
static void add_path(struct walk *walk, int from, int to, double sign, bool staged) {
    const struct mp_graph *graph = walk->graph;
    for (int n = to; n >= 0; n = graph->node[n].before) {
        const struct mp_graph_node *node = &graph->node[n];
        double wait = walk->waits->wait[n];
        double own = node->own - (staged ? graph->ideal[n].own : 0);
        double transfer = node->transfer - (staged ? graph->ideal[n].transfer : 0);
        double before = node->own_after ? 0 : own, after = node->own_after ? own : 0;
        if (n == from) { /* left the meeting: what came of it since */
            add_node(walk, n, sign, (double[]){0, after, transfer, 0});
            return;
        }
        if (n == to)
            add_node(walk, n, sign, (double[]){node->gap, before, 0, 0});
        else
            add_node(walk, n, sign, (double[]){node->gap, own, transfer, wait});
    }
}

static void forget_places(struct walk *walk, int from, int to) {
    for (int n = to; n >= 0; n = walk->graph->node[n].before) {
        walk->place[walk->graph->node[n].group] = 0;
        if (n == from)
            break;
    }
}

static int first_node(const struct mp_graph *graph, int node) {
    while (graph->node[node].before >= 0)
        node = graph->node[node].before;
    return node;
}

/* Adds what the ranks did at the end of the iteration before, since they left a meeting together: s
 * that the late one began later for it. */
static double add_tails(struct walk *walk, int iteration, int late_rank, int waiting_rank) {
    const struct mp_graph *graph = walk->graph;
    int late_from, waiting_from;
    const int before = walk->count;
    double longer = 0;
    if (iteration == 0 ||
        (walk->number && walk->number[iteration] != walk->number[iteration - 1] + 1))
        return 0;
    const struct mp_recorded_rank *a = mp_recorded_rank_at(&graph->times, iteration - 1, late_rank),
                                  *b = mp_recorded_rank_at(&graph->times, iteration - 1,
                                                           waiting_rank);
    const int late = (int)a->first + a->count - 1, waiting = (int)b->first + b->count - 1;
    if (a->count == 0 || b->count == 0)
        return 0;
    common_meeting(walk, late, waiting, false, &late_from, &waiting_from);
    if (late_from < 0)
        return 0;
    add_path(walk, late_from, late, 1, false);
    add_path(walk, waiting_from, waiting, -1, false);
    forget_places(walk, late_from, late);
    forget_places(walk, waiting_from, waiting);
    for (int i = before; i < walk->count; i++)
        longer += walk->excess[i].seconds;
    return longer;
}

/* Where an iteration began: arrival less all that came since. */
static void add_start(struct walk *walk, int late, int waiting) {
    const struct mp_graph *graph = walk->graph;
    const int a = first_node(graph, late), b = first_node(graph, waiting);
    double skew = (graph->node[a].arrived - graph->node[a].gap -
                   (graph->node[a].own_after ? 0 : graph->node[a].own)) -
                  (graph->node[b].arrived - graph->node[b].gap -
                   (graph->node[b].own_after ? 0 : graph->node[b].own));
    if (skew > 0)
        skew -= add_tails(walk, graph->group[graph->node[late].group].iteration,
                          graph->node[late].rank, graph->node[waiting].rank);
    walk->excess[walk->count++] = (struct excess){skew, a, MP_CHARGE_START};
}

/* ---- charging ---- */

static int add_charge(struct mp_waits *waits, const struct mp_charge *charge,
                      struct mp_error *error) {
    MP_TRY(MP_GROW(waits->charge, waits->charges, error));
    waits->charge[waits->charges++] = *charge;
    return MP_OK;
}

/* The largest charges of the wait at `from`, together `seconds`. */
static int pass_on(struct mp_waits *waits, int from, int victim, double seconds,
                   struct mp_error *error) {
    size_t largest[PASSED_ON];
    int count = 0;
    double sum = 0;
    for (size_t c = waits->first[from]; c < waits->first[from] + (size_t)waits->count[from]; c++) {
        int at = count < PASSED_ON ? count++ : PASSED_ON;
        while (at > 0 && waits->charge[largest[at - 1]].seconds < waits->charge[c].seconds) {
            if (at < PASSED_ON)
                largest[at] = largest[at - 1];
            at--;
        }
        if (at < PASSED_ON)
            largest[at] = c;
    }
    for (int i = 0; i < count; i++)
        sum += waits->charge[largest[i]].seconds;
    for (int i = 0; i < count; i++) {
        struct mp_charge charge = waits->charge[largest[i]];
        charge.seconds *= seconds / sum;
        charge.victim = victim;
        charge.propagated = true;
        MP_TRY(add_charge(waits, &charge, error));
    }
    return MP_OK;
}

static bool across_stages(const struct mp_graph *graph, int left, int right) {
    return graph->pipeline[graph->node[left].rank] != graph->pipeline[graph->node[right].rank];
}

/* Charges the wait of node `waiting` to what made `late` come after it. */
static int charge_wait(struct walk *walk, int late, int waiting, struct mp_error *error) {
    const struct mp_graph *graph = walk->graph;
    struct mp_waits *waits = walk->waits;
    double positive = 0, wait = waits->wait[waiting];
    int late_from, waiting_from;
    walk->count = 0;
    const bool staged = across_stages(graph, late, waiting);
    common_meeting(walk, graph->node[late].before, graph->node[waiting].before, staged, &late_from,
                   &waiting_from);
    add_path(walk, late_from, late, 1, staged);
    if (!staged)
        add_path(walk, waiting_from, waiting, -1, false);
    if (late_from < 0)
        add_start(walk, late, waiting);
    forget_places(walk, late_from, late);
    if (!staged)
        forget_places(walk, waiting_from, waiting);
    /* What only the one that waits did made nobody late. */
    int rank = graph->node[late].rank;
    for (int i = 0; i < walk->count; i++)
        if (walk->excess[i].seconds > 0 && graph->node[walk->excess[i].node].rank == rank)
            positive += walk->excess[i].seconds;
    waits->first[waiting] = waits->charges;
    for (int i = 0; i < walk->count; i++) {
        const struct excess *excess = &walk->excess[i];
        if (!(excess->seconds > 0) || graph->node[excess->node].rank != rank)
            continue;
        double seconds = wait * (excess->seconds / positive);
        const int kind = excess->kind == EXCESS_WAIT ? MP_CHARGE_TRANSFER : excess->kind;
        const struct mp_charge charge = {seconds,       excess->node, waiting,
                                         (uint8_t)kind, false,        staged};
        if (excess->kind == EXCESS_WAIT && waits->count[excess->node] > 0)
            MP_TRY(pass_on(waits, excess->node, waiting, seconds, error));
        else
            MP_TRY(add_charge(waits, &charge, error));
    }
    waits->count[waiting] = (int)(waits->charges - waits->first[waiting]);
    if (waits->count[waiting] == 0) /* rounding left nothing to charge */
        waits->wait[waiting] = 0;
    return MP_OK;
}

static int find_all(struct walk *walk, struct mp_error *error) {
    const struct mp_graph *graph = walk->graph;
    for (int i = 0; i < graph->times.iterations; i++) {
        const struct mp_graph_stage *stage = &graph->stage[i];
        for (int e = 0; e < 2 * stage->nodes; e++) {
            int event = graph->event[2 * stage->first_node + e], index = event / 2;
            const struct mp_graph_node *node = &graph->node[index];
            if (event % 2 == 0 || node->last < 0 || node->last == index)
                continue;
            double wait = graph->node[node->last].arrived - node->arrived;
            if (wait > 0 && across_stages(graph, node->last, index)) {
                walk->waits->bubble += fmin(wait, graph->ideal_wait[index]);
                wait -= graph->ideal_wait[index];
            }
            if (!(wait > 0))
                continue;
            walk->waits->wait[index] = wait;
            MP_TRY(charge_wait(walk, node->last, index, error));
        }
    }
    return MP_OK;
}

static int find(struct walk *walk, struct mp_arena *working, struct mp_error *error) {
    const struct mp_recorded_times *times = &walk->graph->times;
    struct mp_waits *waits = walk->waits;
    int longest = 0;
    for (int i = 0; i < times->iterations * times->ranks; i++)
        longest = times->rank[i].count > longest ? times->rank[i].count : longest;
    MP_TAKE_EACH(&waits->memory, times->spans + 1, waits->wait, waits->first, waits->count);
    MP_TAKE(working, walk->excess, 4 * EXCESS_PER_NODE * ((size_t)longest + 1));
    MP_TAKE(working, walk->place, times->spans + 1);
    MP_TRY(mp_arena_check(&waits->memory, error));
    MP_TRY(mp_arena_check(working, error));
    return find_all(walk, error);
}

int mp_waits_find(const struct mp_graph *graph, const int64_t number[], struct mp_waits *waits,
                  struct mp_error *error) {
    struct walk walk = {.graph = graph, .number = number, .waits = waits};
    MP_AUTO(arena) struct mp_arena working = {0};
    *waits = (struct mp_waits){0};
    int code = find(&walk, &working, error);
    if (code)
        mp_waits_destroy(waits);
    return code;
}

void mp_waits_destroy(struct mp_waits *waits) {
    mp_arena_release(&waits->memory);
    free(waits->charge);
    *waits = (struct mp_waits){0};
}
