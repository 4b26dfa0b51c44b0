/* Slots of a layer while it is planned: primitives and what they cost. */
#include <string.h>

#include "baselines/flexmoe/flexmoe.h"

struct mp_flex_costs mp_flex_costs(const struct mp_setting *setting) {
    return (struct mp_flex_costs){
        .route = mp_passes_of_compute(setting->forward_only) * setting->seconds_per_route,
        .row = mp_passes_of_travel(setting->forward_only) * (double)setting->route_bytes /
               setting->bandwidth,
        .replica =
            2 * (double)setting->gradient_bytes / setting->bandwidth / setting->topology.ranks,
    };
}

void mp_flex_create(struct mp_arena *memory, int ranks, int experts, int per_rank,
                    struct mp_flex *flex) {
    size_t r = (size_t)ranks, e = (size_t)experts, all = r * (size_t)per_rank;

    *flex = (struct mp_flex){.ranks = ranks, .experts = experts, .per_rank = per_rank};
    MP_TAKE_EACH(memory, all, flex->expert, flex->listed, flex->kept);
    MP_TAKE_EACH(memory, e, flex->slots, flex->holders, flex->routes, flex->share);
    MP_TAKE(memory, flex->here, r * e);
    MP_TAKE_EACH(memory, r, flex->sent, flex->load, flex->local);
    MP_TAKE(memory, flex->inverse, all + 2);
    MP_TAKE(memory, flex->begin, e + 2);
    MP_TAKE(memory, flex->next, e + 1);
    for (size_t slots = 1; !memory->lacking && slots < all + 2; slots++)
        flex->inverse[slots] = 1.0 / (double)slots;
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
