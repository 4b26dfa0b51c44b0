/* Placements as slots, and how even they make loads. */
#include <math.h>
#include <string.h>

#include "harness/place/place.h"

static int create_map(int layers, int ranks, int experts, int per_rank, struct mp_arena *memory,
                      struct mp_place_map *map, struct mp_error *error) {
    const size_t slots = (size_t)layers * (size_t)ranks * (size_t)per_rank;
    *map = (struct mp_place_map){layers, ranks, experts, per_rank, NULL};
    MP_TAKE(memory, map->expert, slots);
    MP_TRY(mp_arena_check(memory, error));
    for (size_t i = 0; i < slots; i++)
        map->expert[i] = -1;
    return MP_OK;
}

int mp_place_map_contiguous(int layers, int ranks, int experts, struct mp_arena *memory,
                            struct mp_place_map *map, struct mp_error *error) {
    const int per_rank = (experts + ranks - 1) / ranks;
    MP_TRY(create_map(layers, ranks, experts, per_rank, memory, map, error));
    for (int layer = 0; layer < layers; layer++)
        for (int expert = 0, rank = -1, slot = 0; expert < experts; expert++, slot++) {
            int owner = mp_contiguous_owner(expert, experts, ranks);
            slot = owner == rank ? slot : 0;
            rank = owner;
            map->expert[((long)layer * ranks + rank) * per_rank + slot] = expert;
        }
    return MP_OK;
}

/* Experts of a layer that the fullest rank of all holds. */
static int fullest(const struct mp_placement home[], int layers, int32_t held[]) {
    int most = 0;
    for (int layer = 0; layer < layers; layer++) {
        memset(held, 0, (size_t)home->ranks * sizeof *held);
        for (int expert = 0; expert < home->experts; expert++)
            for (int rank = mp_placement_next(&home[layer], expert, 0); rank >= 0;
                 rank = mp_placement_next(&home[layer], expert, rank + 1))
                most = ++held[rank] > most ? held[rank] : most;
    }
    return most;
}

/* Which of the experts in the first `used` slots has most routes per slot. */
static int hottest(const int32_t slot[], int used, const int64_t weight[], const int32_t copies[]) {
    int best = slot[0];
    for (int i = 1; i < used; i++) { /* quotients by products, so that ties are ties */
        double own = (double)weight[slot[i]] * copies[best];
        double other = (double)weight[best] * copies[slot[i]];
        best = own > other ? slot[i] : best;
    }
    return best;
}

static void fill_layer(const struct mp_placement *home, const int64_t weight[], int per_rank,
                       int32_t slot[], int32_t copies[]) {
    for (int expert = 0; expert < home->experts; expert++)
        copies[expert] = mp_placement_copies(home, expert);
    for (int rank = 0; rank < home->ranks; rank++, slot += per_rank) {
        int used = 0;
        for (int expert = 0; expert < home->experts; expert++)
            if (mp_placement_holds(home, expert, rank))
                slot[used++] = expert;
        for (int own = used; own > 0 && used < per_rank; used++) {
            slot[used] = hottest(slot, own, weight, copies);
            copies[slot[used]]++;
        }
    }
}

int mp_place_map_of_homes(const struct mp_placement home[], int layers, const int64_t weight[],
                          struct mp_arena *memory, struct mp_place_map *map,
                          struct mp_error *error) {
    const int ranks = home->ranks, experts = home->experts;
    int32_t *work;
    MP_TAKE(memory, work, ranks > experts ? ranks : experts);
    MP_TRY(mp_arena_check(memory, error));
    const int per_rank = fullest(home, layers, work);
    MP_TRY(create_map(layers, ranks, experts, per_rank, memory, map, error));
    for (int layer = 0; layer < layers; layer++)
        fill_layer(&home[layer], weight + (long)layer * experts, per_rank,
                   map->expert + (long)layer * ranks * per_rank, work);
    return MP_OK;
}

/* ---- balance ---- */

void mp_place_count_slots(const struct mp_place_map *map, int layer, int32_t slots[]) {
    const int32_t *slot = mp_place_slots(map, layer);
    memset(slots, 0, (size_t)map->experts * sizeof *slots);
    for (int i = 0; i < map->ranks * map->per_rank; i++)
        if (slot[i] >= 0)
            slots[slot[i]]++;
}

void mp_place_rank_loads(const struct mp_place_map *map, int layer, const int64_t total[],
                         int32_t slots[], double load[]) {
    const int32_t *slot = mp_place_slots(map, layer);
    mp_place_count_slots(map, layer, slots);
    for (int rank = 0; rank < map->ranks; rank++, slot += map->per_rank) {
        load[rank] = 0;
        for (int i = 0; i < map->per_rank; i++)
            if (slot[i] >= 0)
                load[rank] += (double)total[slot[i]] / slots[slot[i]];
    }
}

bool mp_place_is_idle(const struct mp_place_map *map, int layer, int rank, const bool never[]) {
    const int32_t *slot = mp_place_slots(map, layer) + (long)rank * map->per_rank;
    for (int i = 0; i < map->per_rank; i++)
        if (slot[i] >= 0 && !(never && never[slot[i]]))
            return false;
    return true;
}

double mp_place_max_over_mean(const struct mp_place_map *map, int layer, const int64_t total[],
                              const bool never[], int32_t slots[], double load[]) {
    double sum = 0, most = 0;
    int working = 0;
    mp_place_rank_loads(map, layer, total, slots, load);
    for (int rank = 0; rank < map->ranks; rank++) {
        sum += load[rank];
        most = load[rank] > most ? load[rank] : most;
        working += !mp_place_is_idle(map, layer, rank, never);
    }
    return sum > 0 ? most * working / sum : NAN;
}

int mp_place_balance(const struct mp_place_loads *loads, int64_t from, int64_t to,
                     const struct mp_place_map *map, struct mp_arena *memory,
                     struct mp_place_balance *balance, struct mp_error *error) {
    int32_t *slots;
    double *load, all = 0;
    int64_t blocks = 0;
    *balance = (struct mp_place_balance){.worst = NAN, .mean = NAN};
    MP_TAKE(memory, slots, loads->experts);
    MP_TAKE(memory, load, loads->ranks);
    MP_TAKE(memory, balance->layer, loads->layers);
    for (int layer = 0; layer < loads->layers && !memory->lacking; layer++) {
        const bool *never = loads->never + (long)layer * loads->experts;
        double sum = 0;
        int64_t with = 0;
        for (int64_t i = from; i < to; i++) {
            double one = mp_place_max_over_mean(map, layer, mp_place_total(loads, i, layer), never,
                                                slots, load);
            sum += isnan(one) ? 0 : one;
            with += !isnan(one);
        }
        double mean = balance->layer[layer] = with ? sum / (double)with : NAN;
        if (with && !(mean <= balance->worst)) {
            balance->worst = mean;
            balance->worst_layer = layer;
        }
        all += sum;
        blocks += with;
    }
    balance->mean = blocks ? all / (double)blocks : NAN;
    return mp_arena_check(memory, error);
}
