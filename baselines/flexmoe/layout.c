/* Slots of a layer while it is planned: primitives and what they cost. */
#include <stdlib.h>
#include <string.h>

#include "baselines/flexmoe/flexmoe.h"

struct mp_flex_costs mp_flex_costs(const struct mp_setting *setting) {
    return (struct mp_flex_costs){
        .route = 3 * setting->seconds_per_route,
        .row = 4 * (double)setting->route_bytes / setting->bandwidth,
        .replica = 2 * (double)setting->expert_bytes / setting->bandwidth / setting->topology.ranks,
    };
}

int mp_flex_create(int ranks, int experts, int per_rank, struct mp_flex *flex,
                   struct mp_error *error) {
    size_t r = (size_t)ranks, e = (size_t)experts, all = r * (size_t)per_rank;

    *flex = (struct mp_flex){.ranks = ranks, .experts = experts, .per_rank = per_rank};
    flex->expert = malloc(all * sizeof *flex->expert);
    flex->slots = malloc(e * sizeof *flex->slots);
    flex->here = malloc(r * e * sizeof *flex->here);
    flex->holders = malloc(e * sizeof *flex->holders);
    flex->routes = malloc(e * sizeof *flex->routes);
    flex->sent = malloc(r * sizeof *flex->sent);
    flex->share = malloc(e * sizeof *flex->share);
    flex->inverse = malloc((all + 2) * sizeof *flex->inverse);
    flex->load = malloc(r * sizeof *flex->load);
    flex->local = malloc(r * sizeof *flex->local);
    flex->begin = malloc((e + 2) * sizeof *flex->begin);
    flex->listed = malloc(all * sizeof *flex->listed);
    flex->next = malloc((e + 1) * sizeof *flex->next);
    flex->kept = malloc(all * sizeof *flex->kept);
    if (flex->expert && flex->slots && flex->here && flex->holders && flex->routes && flex->sent &&
        flex->share && flex->inverse && flex->load && flex->local && flex->begin && flex->listed &&
        flex->next && flex->kept) {
        for (size_t slots = 0; slots < all + 2; slots++)
            flex->inverse[slots] = slots > 0 ? 1.0 / (double)slots : 0;
        return MP_OK;
    }
    mp_flex_destroy(flex);
    return mp_fail(error, MP_ENOMEM, "flexmoe has no memory to plan %zu slots", all);
}

void mp_flex_destroy(struct mp_flex *flex) {
    if (!flex)
        return;
    free(flex->expert);
    free(flex->slots);
    free(flex->here);
    free(flex->holders);
    free(flex->routes);
    free(flex->sent);
    free(flex->share);
    free(flex->inverse);
    free(flex->load);
    free(flex->local);
    free(flex->begin);
    free(flex->listed);
    free(flex->next);
    free(flex->kept);
    *flex = (struct mp_flex){0};
}

static void share_routes(struct mp_flex *flex, int expert) {
    flex->share[expert] = flex->slots[expert] > 0
                              ? (flex->routes[expert] << MP_FLEX_UNIT_BITS) / flex->slots[expert]
                              : 0;
}

static int32_t *here(struct mp_flex *flex, int slot, int expert) {
    return &flex->here[(int64_t)(slot / flex->per_rank) * flex->experts + expert];
}

void mp_flex_expand(struct mp_flex *flex, int expert, int slot) {
    if ((*here(flex, slot, expert))++ == 0) {
        flex->replicas += flex->holders[expert] > 0;
        flex->holders[expert]++;
    }
    flex->expert[slot] = expert;
    flex->slots[expert]++;
    share_routes(flex, expert);
}

void mp_flex_shrink(struct mp_flex *flex, int slot) {
    int expert = flex->expert[slot];

    if (expert < 0)
        return;
    flex->expert[slot] = -1;
    flex->slots[expert]--;
    if (--*here(flex, slot, expert) == 0) {
        flex->holders[expert]--;
        flex->replicas -= flex->holders[expert] > 0;
    }
    share_routes(flex, expert);
}

void mp_flex_migrate(struct mp_flex *flex, int one, int other) {
    int first = flex->expert[one], second = flex->expert[other];

    if (one == other)
        return;
    mp_flex_shrink(flex, one);
    mp_flex_shrink(flex, other);
    if (second >= 0)
        mp_flex_expand(flex, second, one);
    if (first >= 0)
        mp_flex_expand(flex, first, other);
}

static void fill_slots(struct mp_flex *flex, const int32_t expert[]) {
    int all = flex->ranks * flex->per_rank;

    flex->replicas = 0;
    memset(flex->slots, 0, (size_t)flex->experts * sizeof *flex->slots);
    memset(flex->here, 0, (size_t)flex->ranks * (size_t)flex->experts * sizeof *flex->here);
    memset(flex->holders, 0, (size_t)flex->experts * sizeof *flex->holders);
    memset(flex->share, 0, (size_t)flex->experts * sizeof *flex->share);
    for (int slot = 0; slot < all; slot++) {
        int32_t filled = expert[slot]; /* of flex->expert itself, perhaps */
        flex->expert[slot] = -1;
        if (filled >= 0)
            mp_flex_expand(flex, filled, slot);
    }
    mp_flex_measure(flex);
}

void mp_flex_begin(struct mp_flex *flex, const int32_t expert[], const struct mp_load *load) {
    flex->source = load;
    mp_load_expert_totals(load, flex->routes);
    for (int source = 0; source < flex->ranks; source++) {
        int64_t sum = 0;
        for (int column = 0; column < flex->experts; column++)
            sum += mp_load_at(load, source, column);
        flex->sent[source] = sum << MP_FLEX_UNIT_BITS;
    }
    fill_slots(flex, expert);
}

void mp_flex_keep(struct mp_flex *flex) {
    memcpy(flex->kept, flex->expert,
           (size_t)flex->ranks * (size_t)flex->per_rank * sizeof *flex->kept);
}

void mp_flex_go_back(struct mp_flex *flex) {
    fill_slots(flex, flex->kept);
}

void mp_flex_measure(struct mp_flex *flex) {
    const int32_t *expert = flex->expert;

    for (int rank = 0; rank < flex->ranks; rank++) {
        flex->load[rank] = flex->local[rank] = 0;
        for (int slot = 0; slot < flex->per_rank; slot++, expert++)
            if (*expert >= 0) {
                flex->load[rank] += flex->share[*expert];
                flex->local[rank] += mp_flex_own(flex, rank, *expert);
            }
    }
}

double mp_flex_cost(const struct mp_flex *flex, const struct mp_flex_costs *costs) {
    int64_t load = 0, traffic = 0;

    for (int rank = 0; rank < flex->ranks; rank++) {
        int64_t crossing = mp_flex_traffic(flex, rank, flex->load[rank], flex->local[rank]);
        if (flex->load[rank] > load)
            load = flex->load[rank];
        if (crossing > traffic)
            traffic = crossing;
    }
    return mp_flex_time(costs, (double)load, (double)traffic, flex->replicas);
}

void mp_flex_index(struct mp_flex *flex) {
    int all = flex->ranks * flex->per_rank, empty = flex->experts;
    int32_t *next = flex->next;

    flex->begin[0] = 0;
    for (int expert = 0; expert < flex->experts; expert++)
        flex->begin[expert + 1] = flex->begin[expert] + flex->slots[expert];
    flex->begin[empty + 1] = all;
    memcpy(next, flex->begin, ((size_t)empty + 1) * sizeof *next);
    for (int slot = 0; slot < all; slot++) {
        int list = flex->expert[slot] < 0 ? empty : flex->expert[slot];
        flex->listed[next[list]++] = slot;
    }
}
