#include "harness/workload/reshape_load.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint32_t *row_of(const struct mp_load *load, int source) {
    return load->count + (long)source * load->experts;
}

static int put_sum(struct mp_load *to, int source, int expert, uint64_t sum,
                   struct mp_error *error) {
    if (sum > UINT32_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "source %d, expert %d: %llu routes after adding up; at most %lu fit", source,
                       expert, (unsigned long long)sum, (unsigned long)UINT32_MAX);
    row_of(to, source)[expert] = (uint32_t)sum;
    return MP_OK;
}

/* Adds up neighbouring ranks, neighbouring experts, or both. */
static int fold(const struct mp_load *from, struct mp_load *to, struct mp_error *error) {
    const int ranks = from->ranks / to->ranks, experts = from->experts / to->experts;
    for (int source = 0; source < to->ranks; source++)
        for (int expert = 0; expert < to->experts; expert++) {
            uint64_t sum = 0;
            for (int rank = source * ranks; rank < (source + 1) * ranks; rank++)
                for (int e = expert * experts; e < (expert + 1) * experts; e++)
                    sum += mp_load_at(from, rank, e);
            MP_TRY(put_sum(to, source, expert, sum, error));
        }
    return MP_OK;
}

/* What does not divide goes round the new sources, from one expert to the next, so that their sums
 * differ by one route at most. */
static void split_ranks(const struct mp_load *from, struct mp_load *to) {
    const int parts = to->ranks / from->ranks;
    for (int source = 0; source < from->ranks; source++) {
        int turn = 0;
        for (int expert = 0; expert < from->experts; expert++) {
            uint32_t routes = mp_load_at(from, source, expert);
            for (int i = 0; i < parts; i++)
                row_of(to, source * parts + i)[expert] = routes / (uint32_t)parts;
            for (uint32_t left = routes % (uint32_t)parts; left > 0; left--) {
                row_of(to, source * parts + turn)[expert]++;
                turn = (turn + 1) % parts;
            }
        }
    }
}

int mp_load_reshape_ranks(const struct mp_load *from, struct mp_load *to, struct mp_error *error) {
    if (to->ranks < from->ranks)
        return fold(from, to, error);
    split_ranks(from, to);
    return MP_OK;
}

/* Shares what column `first` has with the next parts - 1 columns.  Rounding is carried from source
 * to source, so that a column's total is within one route of its share. */
static void split_column(struct mp_load *load, int first, int parts, double tilt) {
    if (parts < 2)
        return;
    const int left = (parts + 1) / 2, right = parts - left;
    const double weight = tilt * left / (tilt * left + (1 - tilt) * right);
    double all = 0, given = 0;
    for (int source = 0; source < load->ranks; source++) {
        uint32_t *count = row_of(load, source) + first;
        const double routes = *count;
        all += routes;
        double wanted = (double)(int64_t)(weight * all + 0.5) - given;
        wanted = wanted > routes ? routes : wanted < 0 ? 0 : wanted;
        given += wanted;
        count[left] = *count - (uint32_t)wanted;
        *count = (uint32_t)wanted;
    }
    split_column(load, first, left, tilt);
    split_column(load, first + left, right, tilt);
}

int mp_load_reshape_experts(const struct mp_load *from, double tilt, struct mp_load *to,
                            struct mp_error *error) {
    if (to->experts < from->experts)
        return fold(from, to, error);
    const int parts = to->experts / from->experts;
    for (int source = 0; source < from->ranks; source++)
        for (int expert = 0; expert < from->experts; expert++)
            row_of(to, source)[(long)expert * parts] = mp_load_at(from, source, expert);
    for (int expert = 0; expert < from->experts; expert++)
        split_column(to, expert * parts, parts, tilt);
    return MP_OK;
}

int mp_load_add(const struct mp_load *from, struct mp_load *sum, struct mp_error *error) {
    for (int source = 0; source < from->ranks; source++)
        for (int expert = 0; expert < from->experts; expert++)
            MP_TRY(put_sum(sum, source, expert,
                           (uint64_t)mp_load_at(from, source, expert) +
                               mp_load_at(sum, source, expert),
                           error));
    return MP_OK;
}

void mp_scale_create(struct mp_arena *memory, int experts, struct mp_scale *scale) {
    MP_TAKE_EACH(memory, experts, scale->share, scale->weight, scale->full);
}

/* Largest remainder first, then the lower expert. */
static int compare_shares(const void *one, const void *other) {
    const struct mp_scale_share *a = one, *b = other;
    return MP_ORDER(b->remainder, a->remainder) ?: MP_ORDER(a->expert, b->expert);
}

static uint64_t open_weight(const struct mp_scale *scale, int experts) {
    uint64_t sum = 0;
    for (int expert = 0; expert < experts; expert++)
        sum += scale->full[expert] ? 0 : scale->weight[expert];
    return sum;
}

/* Fills every expert whose share of `routes` would be above `tokens`, once; whether there was one.
 */
static int fill_largest(struct mp_scale *scale, int experts, uint64_t tokens, uint64_t *routes,
                        uint32_t row[]) {
    const uint64_t weights = open_weight(scale, experts), wanted = *routes;
    int filled = 0;
    for (int expert = 0; expert < experts && weights; expert++) {
        uint64_t product = scale->weight[expert] * wanted; /* below 2^63 */
        if (scale->full[expert] || product / weights < tokens ||
            (product / weights == tokens && product % weights == 0))
            continue;
        row[expert] = (uint32_t)tokens;
        scale->full[expert] = 1;
        *routes -= tokens;
        filled++;
    }
    return filled;
}

/* Shares `routes` by weight among the experts that are not full, by largest remainder. */
static void share_out(struct mp_scale *scale, int experts, uint64_t routes, uint32_t row[]) {
    const uint64_t weights = open_weight(scale, experts);
    int open = 0;
    uint64_t left = routes;
    for (int expert = 0; expert < experts; expert++) {
        if (scale->full[expert])
            continue;
        uint64_t product = scale->weight[expert] * routes;
        row[expert] = (uint32_t)(product / weights);
        left -= product / weights;
        scale->share[open++] = (struct mp_scale_share){product % weights, expert};
    }
    MP_SORT(scale->share, open, compare_shares);
    for (uint64_t i = 0; i < left; i++)
        row[scale->share[i].expert]++;
}

static void scale_row(uint32_t row[], int experts, uint64_t tokens, int top_k,
                      struct mp_scale *scale) {
    uint64_t routes = tokens * (uint64_t)top_k;
    memcpy(scale->weight, row, (size_t)experts * sizeof *row);
    memset(scale->full, 0, (size_t)experts);
    while (fill_largest(scale, experts, tokens, &routes, row))
        ;
    if (open_weight(scale, experts) == 0) /* nobody else has load: all the others alike */
        for (int expert = 0; expert < experts; expert++)
            scale->weight[expert] = 1;
    if (open_weight(scale, experts) > 0)
        share_out(scale, experts, routes, row);
}

int mp_load_scale(struct mp_load *load, int64_t tokens, int top_k, struct mp_scale *scale,
                  struct mp_error *error) {
    for (int source = 0; source < load->ranks; source++) {
        uint32_t *row = row_of(load, source);
        bool any = false;
        for (int expert = 0; expert < load->experts; expert++)
            any = any || row[expert];
        if (!any)
            return mp_fail(error, MP_EFORMAT,
                           "source %d has no routes that could be scaled to %lld tokens", source,
                           (long long)tokens);
        scale_row(row, load->experts, (uint64_t)tokens, top_k, scale);
    }
    return MP_OK;
}

int mp_load_check_distinct(const struct mp_load *load, int top_k, struct mp_error *error) {
    for (int source = 0; source < load->ranks; source++) {
        const uint32_t *row = row_of(load, source);
        uint64_t routes = 0;
        for (int expert = 0; expert < load->experts; expert++)
            routes += row[expert];
        const uint64_t tokens = (routes + (uint64_t)top_k - 1) / (uint64_t)top_k;
        for (int expert = 0; expert < load->experts; expert++)
            if (row[expert] > tokens)
                return mp_fail(error, MP_EFORMAT,
                               "source %d has %llu routes, so %llu tokens of top %d, but %lu "
                               "routes to expert %d: a token goes to an expert once at most",
                               source, (unsigned long long)routes, (unsigned long long)tokens,
                               top_k, (unsigned long)row[expert], expert);
    }
    return MP_OK;
}
