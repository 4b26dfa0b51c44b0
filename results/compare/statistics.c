/* Statistics: see statistics.h. */
#include "results/compare/statistics.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "reference/base/arena.h"
#include "reference/base/median.h"

/* ---- null distributions ---- */

__extension__ typedef unsigned __int128 null_count;

struct null_distribution {
    null_count *ways; /* [sums], ways to reach each sum; in an arena */
    int sums;
    null_count total;
};

static int sum_of(const int ranks[], int count) {
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += ranks[i];
    return sum;
}

/* Sums of the subsets of `choose` ranks; -1: of any number of them.  count <= MP_EXACT_SAMPLES. */
static int null_of(const int ranks[], int count, int choose, struct mp_arena *arena,
                   struct null_distribution *null, struct mp_error *error) {
    const size_t sizes = choose < 0 ? 1 : (size_t)choose + 1; /* of subsets that are told apart */
    *null = (struct null_distribution){.sums = sum_of(ranks, count) + 1};
    const size_t sums = (size_t)null->sums;
    null_count *ways; /* [sizes][sums] */
    MP_TAKE(arena, ways, sizes * sums);
    MP_TRY(mp_arena_check(arena, error));
    ways[0] = 1;
    for (int i = 0; i < count; i++)
        for (int k = choose < 0 ? 1 : i < choose ? i + 1 : choose; k > 0; k--) {
            null_count *before = ways + (size_t)(k - 1) * sums;
            null_count *row = choose < 0 ? before : before + sums;
            for (int s = null->sums - 1; s >= ranks[i]; s--)
                row[s] += before[s - ranks[i]];
        }
    null->ways = ways + (sizes - 1) * sums;
    for (int s = 0; s < null->sums; s++)
        null->total += null->ways[s];
    return MP_OK;
}

/* min(1, 2 * the smaller of both tails, the sum itself in each). */
static double null_two_sided(const struct null_distribution *null, int sum) {
    null_count below = 0, above = 0;
    for (int s = 0; s < null->sums; s++) {
        below += s <= sum ? null->ways[s] : 0;
        above += s >= sum ? null->ways[s] : 0;
    }
    null_count smaller = below < above ? below : above;
    return fmin(1, 2 * (double)smaller / (double)null->total);
}

/* The largest sum with 40 times its lower tail within the total. */
static int quantile_of(const struct null_distribution *null) {
    null_count below = 0;
    int sum = 0;
    for (; sum < null->sums; sum++) {
        below += null->ways[sum];
        if (below > null->total / 40)
            break;
    }
    return sum - 1;
}

/* The largest value of the test's statistic (W, or U of `choose` ranks) whose lower tail is at most
 * 2.5 %, for ranks without ties; -1: there is none. */
static int null_quantile(int count, int choose, int *quantile, struct mp_error *error) {
    int ranks[MP_EXACT_SAMPLES];
    int least = choose < 0 ? 0 : choose * (choose + 1) / 2; /* of the rank sum, where U is 0 */
    MP_AUTO(arena) struct mp_arena arena = {0};
    struct null_distribution null;
    for (int i = 0; i < count; i++)
        ranks[i] = i + 1;
    MP_TRY(null_of(ranks, count, choose, &arena, &null, error));
    int largest = quantile_of(&null) - least;
    *quantile = largest < -1 ? -1 : largest;
    return MP_OK;
}

#define TIE_TOLERANCE 1e-12   /* relative, between sizes of differences of logarithms */
#define OUTLIER_LIMIT 14.826  /* 10 * 1.4826 */
#define NORMAL_2_5 1.95996398 /* quantile of N(0, 1) at 97.5 % */

static int check(const char *what, const double values[], int count, struct mp_error *error) {
    if (count < 1)
        return mp_fail(error, MP_EINVAL, "%s: %d values, at least 1 are needed", what, count);
    if (count > MP_MOST_SAMPLES)
        return mp_fail(error, MP_ELIMIT, "%s: %d values, at most %d can be compared", what, count,
                       MP_MOST_SAMPLES);
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return mp_fail(error, MP_EINVAL, "%s: value %d is not a finite number", what, i + 1);
    return MP_OK;
}

/* ---- one job's iterations ---- */

/* The slope of a straight line through values 0 .. count - 1, per value and in percent of their
 * mean. */
static double slope_percent(const double values[], int count) {
    double n = count, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
    for (int x = 0; x < count; x++) {
        sum_x += x;
        sum_y += values[x];
        sum_xx += (double)x * x;
        sum_xy += x * values[x];
    }
    double slope = (sum_xy - sum_x * sum_y / n) / (sum_xx - sum_x * sum_x / n);
    return 100 * slope / (sum_y / n);
}

int mp_steady_from(const double values[], int count, int window, double limit) {
    for (int first = 0; first + window <= count; first++)
        if (fabs(slope_percent(values + first, window)) < limit)
            return first;
    return -1;
}

int mp_outliers(double values[], int count) {
    const double median = mp_median_of(values, count);
    int outliers = 0;
    for (int i = 0; i < count; i++)
        values[i] = fabs(values[i] - median);
    const double deviation = fmax(mp_median_of(values, count), DBL_EPSILON);
    for (int i = 0; i < count; i++)
        outliers += values[i] / deviation > OUTLIER_LIMIT;
    return outliers;
}

/* ---- ranks ---- */

struct ranked {
    double value;
    int group; /* 1: its rank counts */
    int doubled_rank;
};

MP_COMPARE(compare_ranked, struct ranked, MP_ORDER(a->value, b->value))

/* Sorts and ranks; ties get the mean of their ranks, doubled so that it is whole.  Returns the sum
 * of t^3 - t over the ties. */
static double rank_all(struct ranked items[], int count, double tolerance) {
    double ties = 0;
    MP_SORT(items, count, compare_ranked);
    for (int first = 0, next; first < count; first = next) {
        next = first + 1;
        while (next < count &&
               items[next].value - items[next - 1].value <= tolerance * fabs(items[next].value))
            next++;
        for (int i = first; i < next; i++)
            items[i].doubled_rank = first + 1 + next;
        double size = next - first;
        ties += size * size * size - size;
    }
    return ties;
}

/* Two-sided p of a statistic `distance` away from the null's mean, with continuity 0.5. */
static double normal_p(double distance, double variance) {
    if (variance <= 0)
        return 1;
    double z = fmax(0, fabs(distance) - .5) / sqrt(variance);
    return fmin(1, erfc(z / sqrt(2)));
}

/* A test by the sum of the group's ranks, of which `least` is no part of the statistic: its exact
 * two-sided p among sums of `choose` ranks (-1: of any number), or for many that of the normal
 * distribution of this mean and variance.  `arena` is the items'. */
static int test_of(const struct ranked items[], int count, int choose, double least, double mean,
                   double variance, struct mp_arena *arena, struct mp_rank_test *test,
                   struct mp_error *error) {
    int ranks[MP_EXACT_SAMPLES], sum = 0;
    struct null_distribution null;
    *test = (struct mp_rank_test){.exact = count <= MP_EXACT_SAMPLES};
    for (int i = 0; i < count; i++) {
        sum += items[i].group ? items[i].doubled_rank : 0;
        if (test->exact)
            ranks[i] = items[i].doubled_rank;
    }
    test->statistic = sum / 2. - least;
    if (test->exact)
        MP_TRY(null_of(ranks, count, choose, arena, &null, error));
    test->p = test->exact ? null_two_sided(&null, sum) : normal_p(test->statistic - mean, variance);
    return MP_OK;
}

int mp_mann_whitney(const double base[], int bases, const double head[], int heads,
                    struct mp_rank_test *test, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena arena = {0};
    int count = bases + heads;
    struct ranked *items;
    MP_TRY(check("Mann-Whitney test, base", base, bases, error));
    MP_TRY(check("Mann-Whitney test, head", head, heads, error));
    MP_TAKE(&arena, items, count);
    MP_TRY(mp_arena_check(&arena, error));
    for (int i = 0; i < count; i++)
        items[i] =
            (struct ranked){.value = i < bases ? base[i] : head[i - bases], .group = i < bases};
    double ties = rank_all(items, count, 0), n = bases, m = heads, all = count;
    return test_of(items, count, bases, n * (n + 1) / 2, n * m / 2,
                   n * m / 12 * (all + 1 - ties / (all * (all - 1))), &arena, test, error);
}

int mp_signed_rank(const double differences[], int count, struct mp_rank_test *test,
                   struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena arena = {0};
    int kept = 0;
    struct ranked *items;
    MP_TRY(check("signed rank test", differences, count, error));
    MP_TAKE(&arena, items, count);
    MP_TRY(mp_arena_check(&arena, error));
    for (int i = 0; i < count; i++)
        if (differences[i] != 0)
            items[kept++] =
                (struct ranked){.value = fabs(differences[i]), .group = differences[i] > 0};
    double ties = rank_all(items, kept, TIE_TOLERANCE), n = kept;
    return test_of(items, kept, -1, 0, n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24 - ties / 48,
                   &arena, test, error);
}

/* ---- shift ---- */

/* The median of averages, and as the interval's ends those that as many are beyond as the null's
 * lower tail of at most 2.5 % has sums: of `count` ranks by `choose` (-1: any number), or for many
 * of the normal distribution of this mean and variance. */
static int shift_of(double averages[], size_t size, int count, int choose, double mean,
                    double variance, struct mp_shift *shift, struct mp_error *error) {
    int quantile = (int)fmax(-1, floor(mean - .5 - NORMAL_2_5 * sqrt(variance)));
    if (count <= MP_EXACT_SAMPLES)
        MP_TRY(null_quantile(count, choose, &quantile, error));
    *shift = (struct mp_shift){mp_median_of(averages, (int64_t)size), -INFINITY, INFINITY};
    if (quantile >= 0 && (size_t)quantile < size) {
        shift->low = averages[quantile];
        shift->high = averages[size - 1 - (size_t)quantile];
    }
    return MP_OK;
}

int mp_shift_of_pairs(const double differences[], int count, struct mp_shift *shift,
                      struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena arena = {0};
    MP_TRY(check("shift of pairs", differences, count, error));
    size_t averages = (size_t)count * ((size_t)count + 1) / 2, at = 0;
    double *average, n = count;
    MP_TAKE(&arena, average, averages);
    MP_TRY(mp_arena_check(&arena, error));
    for (int i = 0; i < count; i++)
        for (int j = i; j < count; j++)
            average[at++] = differences[i] / 2 + differences[j] / 2;
    return shift_of(average, averages, count, -1, n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24,
                    shift, error);
}

int mp_shift_of_groups(const double base[], int bases, const double head[], int heads,
                       struct mp_shift *shift, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena arena = {0};
    MP_TRY(check("shift of groups, base", base, bases, error));
    MP_TRY(check("shift of groups, head", head, heads, error));
    size_t differences = (size_t)bases * (size_t)heads, at = 0;
    double *difference, n = bases, m = heads;
    MP_TAKE(&arena, difference, differences);
    MP_TRY(mp_arena_check(&arena, error));
    for (int i = 0; i < bases; i++)
        for (int j = 0; j < heads; j++)
            difference[at++] = head[j] - base[i];
    return shift_of(difference, differences, bases + heads, bases, n * m / 2,
                    n * m * (n + m + 1) / 12, shift, error);
}

/* ---- Student ---- */

/* The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4. */
double mp_student_p(double t, int freedom) {
    if (freedom < 1)
        return NAN;
    double angle = atan2(fabs(t), sqrt(freedom)), cosine = cos(angle), term = 1, sum = 0;
    bool is_odd = freedom % 2;
    if (is_odd)
        term = cosine;
    for (int k = is_odd ? 3 : 2; k <= freedom; k += 2) {
        sum += term;
        term *= cosine * cosine * (k - 1) / k;
    }
    double inside = is_odd ? (angle + sin(angle) * sum) * M_2_PI : sin(angle) * sum;
    return fmax(0, 1 - inside);
}

/* ---- many tests ---- */

int mp_holm(const double p[], int count, double adjusted[], struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena arena = {0};
    double *sorted, largest = 0;
    int made = 0;
    MP_TAKE(&arena, sorted, count + 1);
    MP_TRY(mp_arena_check(&arena, error));
    for (int i = 0; i < count; i++) {
        adjusted[i] = p[i];
        if (!isnan(p[i]))
            sorted[made++] = p[i];
    }
    mp_sort_numbers(sorted, made);
    for (int i = 0; i < made; i++) {
        largest = fmax(largest, fmin(1, (made - i) * sorted[i]));
        for (int k = 0; k < count; k++)
            if (p[k] == sorted[i] && (i == 0 || sorted[i] != sorted[i - 1]))
                adjusted[k] = largest;
    }
    return MP_OK;
}
