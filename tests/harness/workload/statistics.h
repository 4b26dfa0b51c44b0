/* Statistics of a layer's loads, of the shape of the public trace: 32 experts, 16 ranks, top-2,
 * four micro-batches of 2048 tokens. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 24, EXPERTS = 32, RANKS = 16, PER_RANK = EXPERTS / RANKS };
enum { ROUTES = 4 * RANKS * 4096 };

static inline int compare_descending(const void *a, const void *b) {
    return test_compare_doubles(b, a);
}

static inline int hottest(const double count[]) {
    int hot = 0;
    for (int e = 1; e < EXPERTS; e++)
        hot = count[e] > count[hot] ? e : hot;
    return hot;
}

static inline double sum_of_squares(const double count[]) {
    double sum = 0;
    for (int e = 0; e < EXPERTS; e++)
        sum += count[e] * count[e];
    return sum;
}

/* ---- of one layer at one iteration ---- */

static inline double max_over_mean(const double count[]) {
    return count[hottest(count)] * EXPERTS / ROUTES;
}

static inline double effective(const double count[]) {
    return (double)ROUTES * ROUTES / sum_of_squares(count);
}

static inline double variation(const double count[]) {
    return sqrt(EXPERTS / effective(count) - 1);
}

static inline double zeros(const double count[]) {
    double found = 0;
    for (int e = 0; e < EXPERTS; e++)
        found += count[e] < 0.5;
    return found / EXPERTS;
}

static inline double rank_max_over_mean(const double count[]) {
    double most = 0;
    for (int e = 0; e < EXPERTS; e += PER_RANK) {
        double sum = 0;
        for (int i = 0; i < PER_RANK; i++)
            sum += count[e + i];
        most = fmax(most, sum);
    }
    return most * RANKS / ROUTES;
}

static inline double top_share(const double count[]) {
    return count[hottest(count)] / ROUTES;
}

/* Minus the slope of log count over log place, of the 16 hottest that have any. */
static inline double zipf_slope(const double count[]) {
    double sorted[EXPERTS], x = 0, y = 0, xx = 0, xy = 0;
    int n = 0;
    memcpy(sorted, count, sizeof sorted);
    qsort(sorted, EXPERTS, sizeof *sorted, compare_descending);
    for (; n < 16 && sorted[n] > 0; n++) {
        double a = log(n + 1), b = log(sorted[n]);
        x += a, y += b, xx += a * a, xy += a * b;
    }
    return n > 1 ? -(xy - x * y / n) / (xx - x * x / n) : 0;
}

/* Of the logarithms of counts that are not zero. */
static inline double log_deviation(const double count[]) {
    double x = 0, xx = 0;
    int n = 0;
    for (int e = 0; e < EXPERTS; e++)
        if (count[e] > 0) {
            double a = log(count[e]);
            x += a, xx += a * a, n++;
        }
    return sqrt(fmax(0, xx / n - x / n * x / n));
}

static inline double experts_for(const double count[], double part) {
    double sorted[EXPERTS], sum = 0;
    int n = 0;
    memcpy(sorted, count, sizeof sorted);
    qsort(sorted, EXPERTS, sizeof *sorted, compare_descending);
    while (n < EXPERTS && sum < part * ROUTES)
        sum += sorted[n++];
    return n;
}
static inline double experts_for_half(const double count[]) {
    return experts_for(count, 0.5);
}
static inline double experts_for_most(const double count[]) {
    return experts_for(count, 0.8);
}
static inline double experts_for_nearly_all(const double count[]) {
    return experts_for(count, 0.95);
}

/* ---- of one layer at two iterations ---- */

static inline double variation_distance(const double one[], const double other[]) {
    double sum = 0;
    for (int e = 0; e < EXPERTS; e++)
        sum += fabs(one[e] - other[e]);
    return sum / 2 / ROUTES;
}

static inline double correlation(const double one[], const double other[]) {
    const double mean = (double)ROUTES / EXPERTS;
    double xx = 0, yy = 0, xy = 0;
    for (int e = 0; e < EXPERTS; e++) {
        double a = one[e] - mean, b = other[e] - mean;
        xx += a * a, yy += b * b, xy += a * b;
    }
    return xy / sqrt(xx * yy);
}

static inline double same_hottest(const double one[], const double other[]) {
    return hottest(one) == hottest(other);
}
