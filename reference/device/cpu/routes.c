/* Routes: the order in which they are served, their places in the send buffer, and choices under a
 * limit.  Serial: each is a few operations per route, and routes depend on those before them. */
#include "reference/base/random.h"
#include "reference/device/cpu/cpu.h"

#include <string.h>

/* ---- Sorting ----
 *
 * What is sorted are words of 64 bits: a key above, a route or token below. */

enum { DIGIT_BITS = 8, DIGITS = 4, VALUES = 1 << DIGIT_BITS };

static uint64_t word(uint32_t key, int item) {
    return (uint64_t)key << 32 | (uint32_t)item;
}

/* Sorts by the upper 32 bits, ascending and stable: digit by digit from the lowest on.  Returns
 * where the result is, `from` or `to`.  A digit that all keys share costs no pass. */
static const uint64_t *sort_words(size_t count, uint64_t *from, uint64_t *to) {
    uint32_t next[DIGITS][VALUES] = {{0}};
    for (size_t i = 0; i < count; i++)
        for (int d = 0; d < DIGITS; d++)
            next[d][from[i] >> (32 + d * DIGIT_BITS) & (VALUES - 1)]++;
    for (int d = 0; d < DIGITS && count > 0; d++) {
        int shift = 32 + d * DIGIT_BITS;
        if (next[d][from[0] >> shift & (VALUES - 1)] == count)
            continue;
        uint32_t place = 0;
        for (int v = 0; v < VALUES; v++) {
            uint32_t here = next[d][v];
            next[d][v] = place;
            place += here;
        }
        for (size_t i = 0; i < count; i++)
            to[next[d][from[i] >> shift & (VALUES - 1)]++] = from[i];
        uint64_t *sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* Unsigned keys in the falling order of floats.  Positive ones order by their bits as they are,
 * negative ones the other way round. */
static uint32_t falling_key(float value) {
    union {
        float value;
        uint32_t bits;
    } number = {.value = value + 0.0f}; /* -0 becomes 0 */
    uint32_t rising = number.bits >> 31 ? ~number.bits : number.bits | UINT32_C(0x80000000);
    return ~rising;
}

static bool fits(struct mp_device *device, const char *what, int64_t routes) {
    int limit = mp_cpu_of(device)->limits.tokens;
    if (routes > limit)
        mp_fail(&device->error, MP_ELIMIT, "%s of %lld routes: the device was created for up to %d",
                what, (long long)routes, limit);
    return routes <= limit;
}

static void sort_routes(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                        int experts, enum mp_route_sort sort, const float *probability,
                        const int32_t *choice, uint64_t seed, int32_t *order) {
    (void)stream;
    size_t routes = (size_t)tokens * (size_t)top_k;
    if (sort == MP_SORT_BY_CHOICE) {
        for (int j = 0; j < top_k; j++)
            for (int token = 0; token < tokens; token++)
                *order++ = token * top_k + j;
        return;
    }
    if (!fits(device, "sorting", (int64_t)routes)) {
        for (size_t i = 0; i < routes; i++)
            order[i] = (int32_t)i; /* what is read as an index is one */
        return;
    }
    uint64_t *keys = mp_cpu_of(device)->keys;
    for (size_t i = 0; i < routes; i++) {
        size_t row = i / (size_t)top_k * (size_t)experts;
        uint32_t key = sort == MP_SORT_AT_RANDOM
                           ? (uint32_t)(mp_random_splitmix(seed + i * MP_SPLITMIX_STEP) >> 32)
                           : falling_key(probability[row + (size_t)mp_choice_expert(choice[i])]);
        keys[i] = word(key, (int)i);
    }
    const uint64_t *sorted = sort_words(routes, keys, keys + mp_cpu_of(device)->limits.tokens);
    for (size_t i = 0; i < routes; i++)
        order[i] = (int32_t)(uint32_t)sorted[i];
}

/* ---- Positions ---- */

struct parts {
    const int *begin, *count, *row;
    int32_t *part;  /* [experts] the part that takes the next route */
    int32_t *taken; /* [experts] routes it has taken */
};

/* Row of the next route of an expert, or -1. */
static int32_t next_row(const struct parts *parts, int32_t expert) {
    int32_t *part = &parts->part[expert], *taken = &parts->taken[expert];
    while (*part < parts->begin[expert + 1] && *taken == parts->count[*part]) {
        ++*part;
        *taken = 0;
    }
    return *part == parts->begin[expert + 1] ? -1 : parts->row[*part] + (*taken)++;
}

static void place(const struct parts *parts, int32_t route, int token, int32_t expert,
                  int32_t *position, int32_t *row_token) {
    int32_t row = expert < 0 ? -1 : next_row(parts, expert);
    position[route] = row;
    if (row >= 0)
        row_token[row] = token;
}

static void route_positions(struct mp_device *device, mp_stream stream, int routes, int top_k,
                            int experts, const int32_t *choice, const int32_t *order,
                            const int *part_begin, const int *part_count, const int *part_row,
                            int rows, int32_t *position, int32_t *row_token) {
    (void)stream;
    struct mp_cpu *cpu = mp_cpu_of(device);
    if (experts > cpu->limits.experts) {
        mp_fail(&device->error, MP_ELIMIT,
                "route positions of %d experts: the device was created for up to %d", experts,
                cpu->limits.experts);
        return;
    }
    struct parts parts = {part_begin, part_count, part_row, cpu->expert_state,
                          cpu->expert_state + cpu->limits.experts};
    memcpy(parts.part, part_begin, (size_t)experts * sizeof *parts.part);
    memset(parts.taken, 0, (size_t)experts * sizeof *parts.taken);
    memset(row_token, 0xff, (size_t)rows * sizeof *row_token); /* -1 */

    if (order) {
        for (int i = 0; i < routes; i++)
            place(&parts, order[i], order[i] / top_k, choice[order[i]], position, row_token);
        return;
    }
    for (int token = 0, route = 0; route < routes; token++)
        for (int j = 0; j < top_k; j++, route++)
            place(&parts, route, token, choice[route], position, row_token);
}

/* ---- Choices under a limit ---- */

/* The two largest logits, ties to the lower id; among inside experts only, unless that is NULL. */
static void two_largest(size_t experts, const float *logits, const bool *inside, int32_t best[2]) {
    best[0] = best[1] = -1;
    for (size_t e = 0; e < experts; e++) {
        if (inside && !inside[e])
            continue;
        if (best[0] < 0 || logits[e] > logits[best[0]]) {
            best[1] = best[0];
            best[0] = (int32_t)e;
        } else if (best[1] < 0 || logits[e] > logits[best[1]]) {
            best[1] = (int32_t)e;
        }
    }
}

static bool may_limit(struct mp_device *device, int tokens, int experts, const bool inside[],
                      int limit) {
    int insiders = 0;
    for (int e = 0; e < experts; e++)
        insiders += inside[e];
    if (insiders < 2 || limit < 0) {
        mp_fail(&device->error, MP_EINVAL,
                "gate: %d experts inside and at most %d tokens outside; 2 and 0 are the least",
                insiders, limit);
        return false;
    }
    return fits(device, "limiting the choices", tokens);
}

/* Choices are indices: where the limit is impossible they are the plain ones. */
static void limit_choices(struct mp_device *device, mp_stream stream, int tokens, int experts,
                          const float *logits, const bool inside[], int limit, int32_t *choice) {
    (void)stream;
    uint64_t *keys = mp_cpu_of(device)->keys;
    size_t outgoing = 0, count = (size_t)experts, most = (size_t)limit;
    bool possible = may_limit(device, tokens, experts, inside, limit);
    for (int token = 0; token < tokens; token++) {
        const float *row = logits + (size_t)token * count;
        int32_t *best = choice + 2 * (size_t)token;
        two_largest(count, row, NULL, best);
        if (possible && !inside[best[0]])
            keys[outgoing++] = word(falling_key(row[best[0]]), token);
    }
    if (!possible || outgoing <= most)
        return;
    const uint64_t *sorted = sort_words(outgoing, keys, keys + mp_cpu_of(device)->limits.tokens);
    for (int token = 0; token < tokens; token++)
        two_largest(count, logits + (size_t)token * count, inside, choice + 2 * (size_t)token);
    for (size_t i = 0; i < most; i++) {
        size_t token = (size_t)(uint32_t)sorted[i];
        int32_t best[2];
        two_largest(count, logits + token * count, NULL, best);
        choice[2 * token + 1] = best[0];
    }
}

void MP_CPU_NAME(install_routes)(struct mp_device_operations *operations) {
    operations->sort_routes = sort_routes;
    operations->route_positions = route_positions;
    operations->limit_choices = limit_choices;
}
