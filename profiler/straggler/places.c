/* Phases of layers side by side, and the balance of routes beside them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "profiler/straggler/analysis.h"
#include "reference/base/arena.h"
#include "reference/base/order.h"

/* ---- places ---- */

struct places {
    struct analysis *analysis;
    int *of_kind; /* [kinds] */
    double *own;  /* [ranks] of a place in an iteration */
    int *slowest; /* [places][ranks] iterations */
    int *group;   /* [places + 1] groups of an iteration, place by place */
};

static int compare_places(const void *left, const void *right) {
    const struct mp_straggler_place *a = left, *b = right;
    return MP_ORDER(a->layer, b->layer) ?: MP_ORDER(a->phase, b->phase);
}

static int place_of(const struct mp_straggler *out, int phase, int layer) {
    struct mp_straggler_place wanted = {.phase = phase, .layer = layer};
    const struct mp_straggler_place *found =
        bsearch(&wanted, out->place, (size_t)out->places, sizeof wanted, compare_places);
    return found ? (int)(found - out->place) : -1;
}

static void list_places(struct places *places) {
    struct mp_straggler *out = places->analysis->out;
    const struct mp_graph *graph = places->analysis->graph;
    for (int k = 0; k < graph->kinds; k++)
        out->place[k] = (struct mp_straggler_place){
            .phase = graph->kind[k].phase, .layer = graph->kind[k].layer, .slowest = -1};
    MP_SORT(out->place, graph->kinds, compare_places);
    for (int k = 0; k < graph->kinds; k++)
        if (k == 0 || compare_places(&out->place[k], &out->place[out->places - 1]))
            out->place[out->places++] = out->place[k];
    for (int k = 0; k < graph->kinds; k++)
        places->of_kind[k] = place_of(out, graph->kind[k].phase, graph->kind[k].layer);
}

static void add_meeting(const struct places *places, const struct mp_graph_group *group,
                        struct mp_straggler_place *place, double share) {
    const struct mp_graph *graph = places->analysis->graph;
    double first = 1e300, last = -1e300, transfer = 0, least = 1e300;
    for (int m = 0; m < group->count; m++) {
        int n = graph->member[group->first + m];
        const struct mp_graph_node *node = &graph->node[n];
        first = fmin(first, node->arrived);
        last = fmax(last, node->arrived);
        transfer += node->transfer / group->count;
        least = fmin(least, node->released - node->arrived);
        place->waiting += places->analysis->waits.wait[n] * share;
    }
    place->meets = true;
    place->skew += (last - first) * share;
    place->transfer += transfer * share;
    place->transfer_least += least * share;
}

/* Own work of all groups of one place in an iteration; `group` are consecutive of it. */
static void add_work(struct places *places, int iteration, int index) {
    const struct mp_graph *graph = places->analysis->graph;
    const struct mp_graph_stage *stage = &graph->stage[iteration];
    struct mp_straggler_place *place = &places->analysis->out->place[index];
    int ranks = graph->times.ranks, slowest = -1;
    double share = 1.0 / graph->times.iterations, sum = 0, most = 0;
    memset(places->own, 0, (size_t)ranks * sizeof *places->own);
    for (int i = places->group[index]; i < places->group[index + 1]; i++) {
        const struct mp_graph_group *group = &graph->group[stage->first_group + graph->done[i]];
        for (int m = 0; m < group->count; m++) {
            const struct mp_graph_node *node = &graph->node[graph->member[group->first + m]];
            places->own[node->rank] += node->own;
        }
        if (group->meets)
            add_meeting(places, group, place, share);
    }
    for (int r = 0; r < ranks; r++) {
        sum += places->own[r];
        if (places->own[r] >= most) {
            slowest = places->own[r] > most ? r : -1; /* nobody among equals */
            most = places->own[r];
        }
    }
    place->own_mean += sum / ranks * share;
    place->own_most += most * share;
    if (slowest >= 0)
        places->slowest[(size_t)index * (size_t)ranks + (size_t)slowest]++;
}

/* Groups of an iteration sorted by place (counting): graph->done lends the memory. */
static void sort_groups(struct places *places, const struct mp_graph_stage *stage) {
    const struct mp_graph *graph = places->analysis->graph;
    int count = places->analysis->out->places;
    memset(places->group, 0, ((size_t)count + 2) * sizeof *places->group);
    for (int g = 0; g < stage->groups; g++)
        places->group[places->of_kind[graph->group[stage->first_group + g].kind] + 2]++;
    for (int p = 0; p < count; p++)
        places->group[p + 2] += places->group[p + 1];
    for (int g = 0; g < stage->groups; g++)
        graph->done[places
                        ->group[places->of_kind[graph->group[stage->first_group + g].kind] + 1]++] =
            g;
}

static void finish_place(const struct places *places, int index) {
    struct mp_straggler_place *place = &places->analysis->out->place[index];
    const struct mp_graph *graph = places->analysis->graph;
    const struct mp_straggler_rank *rank = places->analysis->out->rank;
    int ranks = graph->times.ranks;
    const int *slowest = &places->slowest[(size_t)index * (size_t)ranks];
    for (int r = 0; r < ranks; r++)
        if (slowest[r] > 0 && (place->slowest < 0 || slowest[r] > slowest[place->slowest]))
            place->slowest = r;
    if (place->slowest >= 0)
        place->slowest_share = (double)slowest[place->slowest] / graph->times.iterations;
    place->tokens = NAN;
    bool has_experts = place->layer >= 0 && place->layer < graph->layers;
    double sum = 0, most = 0;
    for (int r = 0; r < ranks && rank; r++) {
        double own = 0;
        for (int i = 0; i < graph->times.iterations && has_experts; i++)
            own += fmax(0, analysis_tokens(places->analysis, i, place->layer, r));
        sum += own;
        most = fmax(most, own);
    }
    if (mp_phase_of_experts(place->phase) && sum > 0)
        place->tokens = most * ranks / sum;
}

static void find_places(struct places *places) {
    struct analysis *analysis = places->analysis;
    const struct mp_graph *graph = analysis->graph;
    for (int i = 0; i < graph->times.iterations; i++) {
        sort_groups(places, &graph->stage[i]);
        for (int p = 0; p < analysis->out->places; p++)
            add_work(places, i, p);
    }
    for (size_t c = 0; c < analysis->waits.charges; c++) {
        const struct mp_charge *charge = &analysis->waits.charge[c];
        int kind = graph->group[graph->node[charge->node].group].kind;
        analysis->out->place[places->of_kind[kind]].caused +=
            charge->seconds / graph->times.iterations;
    }
    for (int p = 0; p < analysis->out->places; p++)
        finish_place(places, p);
}

int analysis_find_places(struct analysis *analysis, struct mp_error *error) {
    const struct mp_graph *graph = analysis->graph;
    size_t kinds = (size_t)graph->kinds, ranks = (size_t)graph->times.ranks;
    struct places places = {.analysis = analysis};
    MP_AUTO(arena) struct mp_arena arena = {0};
    MP_TAKE(&arena, places.of_kind, kinds + 1);
    MP_TAKE(&arena, places.own, ranks);
    MP_TAKE(&arena, places.slowest, kinds * ranks + 1);
    MP_TAKE(&arena, places.group, kinds + 2);
    MP_TAKE(&analysis->out->memory, analysis->out->place, kinds + 1);
    MP_TRY(mp_arena_check(&arena, error));
    MP_TRY(mp_arena_check(&analysis->out->memory, error));
    list_places(&places);
    find_places(&places);
    return MP_OK;
}

/* ---- balance ---- */

struct tally {
    double *value[MP_MEASURES]; /* [iterations * layers] each */
    int64_t *sorted;            /* [experts] */
    double *share;              /* [experts] of a layer */
    int count;
};

static void forget_balance(struct mp_straggler_balance *balance) {
    *balance = (struct mp_straggler_balance){.time_imbalance = NAN,
                                             .token_imbalance = NAN,
                                             .hottest_layer = -1,
                                             .hottest_expert = -1,
                                             .hottest_share = NAN};
    for (int m = 0; m < MP_MEASURES; m++)
        balance->of[m] = (struct mp_percentiles){NAN, NAN, NAN, NAN};
}

static void add_layer(const struct mp_straggler_input *input, struct tally *tally, int iteration,
                      int layer) {
    size_t at = (size_t)iteration * (size_t)input->layers + (size_t)layer;
    struct mp_balance balance =
        mp_balance_of(input->routes + at * (size_t)input->experts, input->experts, tally->sorted);
    double total = 0;
    for (int e = 0; e < input->experts; e++)
        total += (double)tally->sorted[e];
    const double measure[MP_MEASURES] = {
        balance.imbalance.max_over_mean,
        balance.imbalance.effective,
        balance.variation,
        balance.gini,
        balance.imbalance.dead_fraction,
        balance.overload_fraction,
        total == 0       ? NAN
        : input->dropped ? input->dropped[at] / total
                         : 0,
        balance.chance_variation,
    };
    for (int m = 0; m < MP_MEASURES; m++)
        tally->value[m][tally->count] = measure[m];
    tally->count++;
}

static void find_hottest(const struct mp_straggler_input *input, struct tally *tally, int layer,
                         struct mp_straggler_balance *balance) {
    double total = 0;
    memset(tally->share, 0, (size_t)input->experts * sizeof *tally->share);
    for (int i = 0; i < input->times.iterations; i++)
        for (int e = 0; e < input->experts; e++) {
            double routes = input->routes[((size_t)i * (size_t)input->layers + (size_t)layer) *
                                              (size_t)input->experts +
                                          (size_t)e];
            tally->share[e] += routes;
            total += routes;
        }
    for (int e = 0; e < input->experts && total > 0; e++)
        if (!(tally->share[e] / total <= balance->hottest_share)) {
            balance->hottest_share = tally->share[e] / total;
            balance->hottest_expert = e;
            balance->hottest_layer = layer;
        }
}

/* Expert work and tokens over the ranks, of one layer or (-1) all. */
static void find_times(const struct analysis *analysis, int layer,
                       struct mp_straggler_balance *balance) {
    const struct mp_straggler *out = analysis->out;
    double time = 0, tokens = 0;
    int times = 0, counted = 0;
    for (int p = 0; p < out->places; p++) {
        const struct mp_straggler_place *place = &out->place[p];
        if (place->phase != MP_PHASE_EXPERT || (layer >= 0 && place->layer != layer))
            continue;
        if (place->own_mean > 0) {
            time += place->own_most / place->own_mean;
            times++;
        }
        if (!isnan(place->tokens)) {
            tokens += place->tokens;
            counted++;
        }
    }
    balance->time_imbalance = times ? time / times : NAN;
    balance->token_imbalance = counted ? tokens / counted : NAN;
}

static int allocate_tally(const struct mp_straggler_input *input, struct mp_arena *arena,
                          struct tally *tally, struct mp_error *error) {
    size_t rows = (size_t)input->times.iterations * (size_t)input->layers + 1;
    for (int m = 0; m < MP_MEASURES; m++)
        MP_TAKE(arena, tally->value[m], rows);
    MP_TAKE_EACH(arena, input->experts + 1, tally->sorted, tally->share);
    return mp_arena_check(arena, error);
}

/* Of the layers from first to before last. */
static void find_balance(const struct mp_straggler_input *input, struct tally *tally, int first,
                         int last, struct mp_straggler_balance *balance) {
    tally->count = 0;
    for (int l = first; l < last; l++) {
        for (int i = 0; i < input->times.iterations; i++)
            add_layer(input, tally, i, l);
        find_hottest(input, tally, l, balance);
    }
    for (int m = 0; m < MP_MEASURES; m++)
        balance->of[m] = mp_percentiles_of(tally->value[m], tally->count);
}

int analysis_find_balance(struct analysis *analysis, struct mp_error *error) {
    const struct mp_straggler_input *input = analysis->input;
    struct mp_straggler *out = analysis->out;
    struct tally tally = {0};
    MP_AUTO(arena) struct mp_arena arena = {0};
    forget_balance(&out->balance);
    find_times(analysis, -1, &out->balance);
    if (!input->routes || input->layers == 0 || input->experts == 0)
        return MP_OK;
    MP_TAKE(&out->memory, out->layer, input->layers);
    MP_TRY(mp_arena_check(&out->memory, error));
    out->layers = input->layers;
    MP_TRY(allocate_tally(input, &arena, &tally, error));
    for (int l = 0; l < input->layers; l++) {
        forget_balance(&out->layer[l]);
        find_times(analysis, l, &out->layer[l]);
        find_balance(input, &tally, l, l + 1, &out->layer[l]);
    }
    find_balance(input, &tally, 0, input->layers, &out->balance);
    return MP_OK;
}
