/* Dynamics: its loads beside those of the trace that it is a model of, measure by measure. */
#include "harness/workload/formats.h"
#include "harness/workload/generate.h"
#include "tests/errors.h"
#include "tests/harness/workload/dynamics.h"
#include "tests/harness/workload/statistics.h"

enum { STEP = 10, STEPS = 301, SEEDS = 8, FIRST_SEED = 101 };
enum { LEAST_ROUTES = ROUTES / 200 }; /* half a per cent */

/* Routes of every expert in iterations 1, 11, ..., 3001. */
struct history {
    double count[STEPS][LAYERS][EXPERTS];
};

/* ---- of a history ---- */

typedef double one_measure(const double count[]);
typedef double two_measure(const double one[], const double other[]);

static double mean_at(const struct history *h, one_measure *of, int iteration) {
    double sum = 0;
    for (int l = 0; l < LAYERS; l++)
        sum += of(h->count[iteration / STEP][l]);
    return sum / LAYERS;
}

static double least_at(const struct history *h, one_measure *of, int iteration) {
    double least = INFINITY;
    for (int l = 0; l < LAYERS; l++)
        least = fmin(least, of(h->count[iteration / STEP][l]));
    return least;
}

static double most_at(const struct history *h, one_measure *of, int iteration) {
    double most = -INFINITY;
    for (int l = 0; l < LAYERS; l++)
        most = fmax(most, of(h->count[iteration / STEP][l]));
    return most;
}

/* Mean over layers and pairs of iterations `lag` apart, of which the first is from `from` to `to`.
 */
static double mean_over(const struct history *h, two_measure *of, int from, int to, int lag) {
    double sum = 0;
    int n = 0;
    for (int i = from / STEP; i < to / STEP; i++)
        for (int l = 0; l < LAYERS; l++, n++)
            sum += of(h->count[i][l], h->count[i + lag / STEP][l]);
    return sum / n;
}

/* Standard deviation of the change of log shares that are above .5 % first; an expert without
 * routes counts as one with half a route. */
static double change(const struct history *h, int from, int to, int lag) {
    double x = 0, xx = 0, n = 0;
    for (int i = from / STEP; i + lag / STEP <= to / STEP; i++)
        for (int l = 0; l < LAYERS; l++)
            for (int e = 0; e < EXPERTS; e++) {
                double one = h->count[i][l][e], other = h->count[i + lag / STEP][l][e];
                if (one < LEAST_ROUTES)
                    continue;
                double step = log(fmax(other, 0.5) / one);
                x += step, xx += step * step, n++;
            }
    return sqrt(xx / n - x / n * x / n);
}

/* How many of those shares are `factor` times as large or small ten iterations later. */
static double jumps(const struct history *h, int from, int to, double factor) {
    double found = 0, n = 0;
    for (int i = from / STEP; i < to / STEP; i++)
        for (int l = 0; l < LAYERS; l++)
            for (int e = 0; e < EXPERTS; e++) {
                double one = h->count[i][l][e], other = fmax(h->count[i + 1][l][e], 0.5);
                if (one < LEAST_ROUTES)
                    continue;
                found += other >= factor * one || one >= factor * other;
                n++;
            }
    return found / n;
}

/* The last iteration at which a layer is further than .2 from what it is at 2001. */
static double settling(const struct history *h, int layer) {
    int last = 0;
    for (int i = 0; i < 2000 / STEP; i++)
        if (variation_distance(h->count[i][layer], h->count[2000 / STEP][layer]) > 0.2)
            last = i;
    return last * STEP + 1;
}

static int ascending(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Place 0: the first layer to settle, 12: the median, 23: the last. */
static double settling_of(const struct history *h, int place) {
    int settled[LAYERS];
    for (int l = 0; l < LAYERS; l++)
        settled[l] = (int)settling(h, l);
    qsort(settled, LAYERS, sizeof *settled, ascending);
    return settled[place];
}

static int ascending_doubles(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Over the iterations from `from` to `to`: the median of all layers', their mean, and how far a
 * layer's are spread (standard deviation), mean over layers. */
static double median_over(const struct history *h, one_measure *of, int from, int to) {
    static double value[STEPS * LAYERS];
    int n = 0;
    for (int i = from / STEP; i <= to / STEP; i++)
        for (int l = 0; l < LAYERS; l++)
            value[n++] = of(h->count[i][l]);
    qsort(value, (size_t)n, sizeof *value, ascending_doubles);
    return (value[(n - 1) / 2] + value[n / 2]) / 2;
}

static double mean_through(const struct history *h, one_measure *of, int from, int to) {
    double sum = 0;
    for (int i = from / STEP; i <= to / STEP; i++)
        sum += mean_at(h, of, i * STEP + 1);
    return sum / (to / STEP - from / STEP + 1);
}

static double spread_within(const struct history *h, one_measure *of, int from, int to) {
    double sum = 0, n = to / STEP - from / STEP + 1;
    for (int l = 0; l < LAYERS; l++) {
        double x = 0, xx = 0;
        for (int i = from / STEP; i <= to / STEP; i++) {
            double value = of(h->count[i][l]);
            x += value, xx += value * value;
        }
        sum += sqrt(fmax(xx / n - x / n * x / n, 0));
    }
    return sum / LAYERS;
}

/* ---- the measures ---- */

/* A measure at some places of the trace (thu-pacman/SmartMoE-AE), what the trace gives there to
 * three digits, and how far the generator may be from it: a part of it, or, where a share can be
 * near 0 or 1, of 1 (`absolute`).  Where the model is known to be worse, a row of its own has a
 * wider one. */
struct measure {
    const char *name;
    enum { AT, AT_LEAST, AT_MOST, MEDIAN, THROUGH, WITHIN, NEXT, OVER, CHANGE, JUMP, SETTLE } kind;
    one_measure *one;
    two_measure *two;
    double tolerance;
    bool absolute;
    struct place {
        int from, to, lag; /* AT, NEXT: at `from`; JUMP: lag is the factor; SETTLE: which layer */
        double known;
    } places[8]; /* until `from` is 0 */
};

static double find(const struct measure *m, const struct place *at, const struct history *h) {
    switch (m->kind) {
    case AT:
        return mean_at(h, m->one, at->from);
    case AT_LEAST:
        return least_at(h, m->one, at->from);
    case AT_MOST:
        return most_at(h, m->one, at->from);
    case MEDIAN:
        return median_over(h, m->one, at->from, at->to);
    case THROUGH:
        return mean_through(h, m->one, at->from, at->to);
    case WITHIN:
        return spread_within(h, m->one, at->from, at->to);
    case NEXT:
        return mean_over(h, m->two, at->from, at->from + STEP, STEP);
    case OVER:
        return mean_over(h, m->two, at->from, at->to, at->lag);
    case CHANGE:
        return change(h, at->from, at->to, at->lag);
    case JUMP:
        return jumps(h, at->from, at->to, at->lag);
    case SETTLE:
        break;
    }
    return settling_of(h, at->lag);
}

#define EIGHT(a, b, c, d, e, f, g, h)                                                              \
    {                                                                                              \
        {1, 0, 0, a}, {11, 0, 0, b}, {31, 0, 0, c}, {101, 0, 0, d}, {201, 0, 0, e},                \
            {501, 0, 0, f}, {1001, 0, 0, g}, {                                                     \
            2001, 0, 0, h                                                                          \
        }                                                                                          \
    }
#define FOUR(a, b, c, d)                                                                           \
    {                                                                                              \
        {201, 0, 0, a}, {501, 0, 0, b}, {1001, 0, 0, c}, {                                         \
            2001, 0, 0, d                                                                          \
        }                                                                                          \
    }

#define LATER(lag, known)                                                                          \
    { 2011, 3001, lag, known }

static const struct measure measures[] = {
    {"max / mean", AT, max_over_mean, NULL, 0.2, false,
     EIGHT(1.54, 14, 15.7, 12.1, 10.6, 9.11, 10.5, 11.6)},
    {"CV", AT, variation, NULL, 0.2, false, EIGHT(.208, 3.06, 3.7, 2.76, 2.32, 1.96, 2.19, 2.36)},
    {"effective experts", AT, effective, NULL, 0.2, false,
     EIGHT(30.7, 3.49, 2.25, 3.88, 5.43, 7.12, 5.99, 5.44)},
    {"experts without routes",
     AT,
     zeros,
     NULL,
     0.06,
     true,
     {{1, 0, 0, 0}, {11, 0, 0, .318}, {31, 0, 0, .793}, {101, 0, 0, .439}}},
    {"experts without routes", AT, zeros, NULL, 0.04, true, FOUR(.309, .078, .095, .115)},
    {"ranks' max / mean", AT, rank_max_over_mean, NULL, 0.2, false,
     EIGHT(1.3, 7.34, 8.18, 6.52, 5.72, 4.94, 5.71, 6.17)},
    {"correlation, +10",
     NEXT,
     NULL,
     correlation,
     0.1,
     true,
     {{1, 0, 0, .137}, {11, 0, 0, .643}, {31, 0, 0, .961}, {101, 0, 0, .956}}},
    {"correlation, +10", NEXT, NULL, correlation, 0.01, true, FOUR(.99, .996, .998, .999)},
    {"total variation, +10",
     NEXT,
     NULL,
     variation_distance,
     0.25,
     false,
     {{1, 0, 0, .795}, {11, 0, 0, .431}, {101, 0, 0, .139}}},
    {"total variation, +10", NEXT, NULL, variation_distance, 0.35, false, {{31, 0, 0, .086}}},
    {"total variation, +10", NEXT, NULL, variation_distance, 0.25, false,
     FOUR(.062, .045, .027, .024)},
    {"Zipf slope of 16",
     AT,
     zipf_slope,
     NULL,
     0.25,
     false,
     {{201, 0, 0, 2.92}, {1001, 0, 0, 1.82}, {2001, 0, 0, 2}}},
    {"Zipf slope of 16", AT, zipf_slope, NULL, 0.35, false, {{501, 0, 0, 1.57}}},
    {"sd of log load", AT, log_deviation, NULL, 0.2, false, FOUR(3.53, 3.04, 2.92, 3.04)},
    {"experts for 50 %", AT, experts_for_half, NULL, 0.2, false, FOUR(2.54, 3.08, 2.67, 2.58)},
    {"experts for 80 %", AT, experts_for_most, NULL, 0.2, false, FOUR(4.92, 7.08, 6.33, 6)},
    {"experts for 95 %", AT, experts_for_nearly_all, NULL, 0.2, false, FOUR(8, 12, 11.4, 10.8)},
    {"top-1 share", AT, top_share, NULL, 0.2, false, FOUR(.33, .285, .328, .363)},
    {"change of log share, sd",
     CHANGE,
     NULL,
     NULL,
     0.3,
     false,
     {{51, 201, 10, 1.88},
      {51, 201, 50, 2.92},
      {51, 201, 100, 3.5},
      {201, 501, 10, .373},
      {201, 501, 50, .749},
      {201, 501, 100, .97},
      {201, 501, 200, 1.28}}},
    {"change of log share, sd",
     CHANGE,
     NULL,
     NULL,
     0.25,
     false,
     {{501, 1001, 10, .212},
      {501, 1001, 50, .361},
      {1001, 2001, 10, .131},
      {1001, 2001, 50, .165},
      {1001, 2001, 100, .195},
      {1001, 2001, 200, .252}}},
    {"change of log share, sd",
     CHANGE,
     NULL,
     NULL,
     0.4,
     false,
     {{501, 1001, 100, .536}, {501, 1001, 200, .881}}},
    {"hottest unchanged",
     OVER,
     NULL,
     same_hottest,
     0.22,
     true,
     {{1, 101, 10, .7}, {1, 101, 100, .492}, {1, 101, 500, .429}}},
    {"hottest unchanged",
     OVER,
     NULL,
     same_hottest,
     0.15,
     true,
     {{101, 501, 10, .946},
      {101, 501, 100, .871},
      {101, 501, 500, .769},
      {501, 2001, 10, .965},
      {501, 2001, 100, .962},
      {501, 2001, 500, .947}}},
    {"jumps within 10", JUMP, NULL, NULL, 0.1, true, {{1, 101, 2, .669}, {1, 101, 4, .559}}},
    {"jumps within 10", JUMP, NULL, NULL, 0.025, true, {{101, 501, 2, .073}, {101, 501, 4, .026}}},
    {"jumps within 10", JUMP, NULL, NULL, 0.004, true, {{501, 2001, 2, .007}}},
    /* So late the generator has hardly any of these: judged is that there are not more. */
    {"jumps within 10", JUMP, NULL, NULL, 0.001, true, {{501, 2001, 4, .001}}},
    {"layers' least max / mean", AT_LEAST, max_over_mean, NULL, 0.3, false, {{2001, 0, 0, 4.61}}},
    {"layers' most max / mean", AT_MOST, max_over_mean, NULL, 0.3, false, {{2001, 0, 0, 16}}},
    {"layers' least effective", AT_LEAST, effective, NULL, 0.3, false, {{2001, 0, 0, 2.85}}},
    {"layers' most effective", AT_MOST, effective, NULL, 0.3, false, {{2001, 0, 0, 12.6}}},
    {"first layer settled", SETTLE, NULL, NULL, 1.5, false, {{1, 2001, 0, 61}}},
    {"median layer settled", SETTLE, NULL, NULL, 0.3, false, {{1, 2001, 12, 501}}},
    {"last layer settled", SETTLE, NULL, NULL, 0.4, false, {{1, 2001, 23, 801}}},
    /* Behind the iterations that the table is fitted to; but its last row was chosen among several
     * that fit up to there by how these come out. */
    {"later: median max / mean", MEDIAN, max_over_mean, NULL, 0.2, false, {LATER(0, 13.6)}},
    {"later: within a layer", WITHIN, max_over_mean, NULL, 0.2, false, {LATER(0, .195)}},
    {"later: experts for 95 %",
     THROUGH,
     experts_for_nearly_all,
     NULL,
     0.2,
     false,
     {LATER(0, 10.8)}},
    {"later: total variation", OVER, NULL, variation_distance, 0.2, false, {LATER(10, .0216)}},
    {"later: change, sd", CHANGE, NULL, NULL, 0.2, false, {LATER(10, .125), LATER(100, .146)}},
};
enum { MEASURES = sizeof measures / sizeof *measures, PLACES = 8 };

/* ---- how ranks and micro-batches differ ---- */

enum { MOMENTS = 3, MICRO_BATCHES = 4 };
static const int moments[MOMENTS] = {101, 1001, 2001};

/* Routes of the ranks one by one at some iterations. */
struct sources {
    double count[MOMENTS][MICRO_BATCHES][LAYERS][RANKS][EXPERTS];
};

/* Half the sum of the differences of shares. */
static double distance(const double one[], const double other[]) {
    double sum = 0, all = 0, others = 0;
    for (int e = 0; e < EXPERTS; e++)
        all += one[e], others += other[e];
    for (int e = 0; e < EXPERTS; e++)
        sum += fabs(one[e] / all - other[e] / others);
    return sum / 2;
}

/* Mean distance of a rank's routes in an iteration to those of all ranks. */
static double rank_distance(const struct sources *s, int moment) {
    double sum = 0;
    for (int l = 0; l < LAYERS; l++) {
        double all[EXPERTS] = {0}, own[RANKS][EXPERTS] = {{0}};
        for (int m = 0; m < MICRO_BATCHES; m++)
            for (int r = 0; r < RANKS; r++)
                for (int e = 0; e < EXPERTS; e++) {
                    own[r][e] += s->count[moment][m][l][r][e];
                    all[e] += s->count[moment][m][l][r][e];
                }
        for (int r = 0; r < RANKS; r++)
            sum += distance(own[r], all) / RANKS / LAYERS;
    }
    return sum;
}

/* Mean distance of a rank's micro-batch to its next. */
static double micro_batch_distance(const struct sources *s, int moment) {
    double sum = 0;
    for (int m = 1; m < MICRO_BATCHES; m++)
        for (int l = 0; l < LAYERS; l++)
            for (int r = 0; r < RANKS; r++)
                sum += distance(s->count[moment][m - 1][l][r], s->count[moment][m][l][r]);
    return sum / (MICRO_BATCHES - 1) / LAYERS / RANKS;
}

/* ---- the two that are compared ---- */

static const char *trace_path(void) {
    static const char path[] = MOEPERF_TRACES "/smartmoe_gpt_e32_top2.csv.zst";
    return access(path, R_OK) ? NULL : path;
}

static void add_block(const struct mp_trace_block *block, struct history *h, struct sources *s) {
    int i = (int)block->iteration / STEP, moment = 0;
    while (moment < MOMENTS && moments[moment] != block->iteration)
        moment++;
    for (int r = 0; r < RANKS; r++)
        for (int e = 0; e < EXPERTS; e++) {
            double count = mp_load_at(&block->load, r, e);
            h->count[i][block->layer][e] += count;
            if (moment < MOMENTS)
                s->count[moment][block->micro_batch][block->layer][r][e] = count;
        }
}

/* False, after saying so, if the trace is not there. */
static bool read_trace(struct history *h, struct sources *s) {
    struct mp_error error = {0};
    struct mp_trace_stream *stream;
    const struct mp_trace_block *block;
    if (!trace_path()) {
        print_message("smartmoe_gpt_e32_top2.csv.zst is not there: compared with what it gave\n");
        return false;
    }
    if (mp_format_open("csv", trace_path(), 0, &stream, &error))
        fail_msg("%s", error.text);
    while (!mp_trace_next(stream, &block, &error) && block)
        add_block(block, h, s);
    if (error.code)
        fail_msg("%s", error.text);
    mp_trace_stream_destroy(stream);
    return true;
}

static void set_options(struct mp_generate_options *options, const char *sampling, int seed,
                        int tokens, int micro_batches) {
    struct mp_error error = {0};
    const struct mp_generator *kind = mp_generator_find("dynamics", &error);
    assert_int_equal(mp_generate_set_defaults(kind, options, &error), MP_OK);
    assert_int_equal(mp_generate_set(kind, options, "sampling", sampling, NULL, &error), MP_OK);
    options->seed = seed;
    options->layers = LAYERS;
    options->experts = EXPERTS;
    options->ranks = RANKS;
    options->tokens = tokens;
    options->micro_batches = micro_batches;
}

/* The loads of all iterations of the trace, without the noise of tokens: the trace has so many
 * routes that shares of half a per cent are within 3 %. */
static void generate_history(struct history *h, int seed) {
    struct mp_generate_options options;
    struct mp_load load;
    int64_t total[EXPERTS];
    set_options(&options, "exact", seed, ROUTES / 2 / RANKS, 1);
    struct mp_generation *generation = start(&options, &load);
    for (int i = 0; i < STEPS; i++)
        for (int l = 0; l < LAYERS; l++) {
            assert_works(mp_generation_load(generation, 1 + i * STEP, 0, l, &load, &error));
            mp_load_expert_totals(&load, total);
            for (int e = 0; e < EXPERTS; e++)
                h->count[i][l][e] = (double)total[e];
        }
    mp_load_destroy(&load);
    mp_generation_destroy(generation);
}

static void generate_sources(struct sources *s, int seed) {
    struct mp_generate_options options;
    struct mp_load load;
    set_options(&options, "random", seed, 2048, MICRO_BATCHES);
    struct mp_generation *generation = start(&options, &load);
    for (int i = 0; i < MOMENTS; i++)
        for (int m = 0; m < MICRO_BATCHES; m++)
            for (int l = 0; l < LAYERS; l++) {
                assert_works(mp_generation_load(generation, moments[i], m, l, &load, &error));
                for (int r = 0; r < RANKS; r++)
                    for (int e = 0; e < EXPERTS; e++)
                        s->count[i][m][l][r][e] = mp_load_at(&load, r, e);
            }
    mp_load_destroy(&load);
    mp_generation_destroy(generation);
}

/* ---- tests ---- */

static void *zeroed(size_t size) {
    void *memory = calloc(1, size);
    assert_non_null(memory);
    return memory;
}

/* "201..501, +50" or "201". */
static const char *when(const struct measure *m, const struct place *at, char text[32]) {
    if (m->kind >= MEDIAN && m->kind <= WITHIN)
        snprintf(text, 32, "%d..%d", at->from, at->to);
    else if (m->kind == OVER || m->kind == CHANGE)
        snprintf(text, 32, "%d..%d, +%d", at->from, at->to, at->lag);
    else if (m->kind == JUMP)
        snprintf(text, 32, "%d..%d, %dx", at->from, at->to, at->lag);
    else if (m->kind == SETTLE)
        snprintf(text, 32, "to %d", at->to);
    else
        snprintf(text, 32, "%d", at->from);
    return text;
}

/* Prints a row; false if the generator is too far off. */
static bool compare(const char *name, const char *place, double known, double found,
                    double tolerance, bool absolute) {
    double off = found - known, allowed = absolute ? tolerance : tolerance * known;
    bool near = fabs(off) <= allowed;
    print_message("%-28s %-15s %9.4g %9.4g  %+7.1f %s%s\n", name, place, known, found,
                  100 * (absolute ? off : off / known), absolute ? "points" : "%",
                  near ? "" : "  TOO FAR");
    return near;
}

static void head(void) {
    print_message("%-28s %-15s %9s %9s\n", "measure", "iterations", "trace", "generator");
}

TEST(test_it_moves_as_the_trace_does) {
    struct history *trace = zeroed(sizeof *trace), *made = zeroed(sizeof *made);
    struct sources *sources = zeroed(sizeof *sources);
    double mean[MEASURES][PLACES] = {{0}};
    int far = 0;
    bool present = read_trace(trace, sources);
    for (int seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) { /* none that the fit saw */
        generate_history(made, seed);
        for (int i = 0; i < MEASURES; i++)
            for (int j = 0; j < PLACES && measures[i].places[j].from; j++)
                mean[i][j] += find(&measures[i], &measures[i].places[j], made) / SEEDS;
    }
    head();
    for (int i = 0; i < MEASURES; i++)
        for (int j = 0; j < PLACES && measures[i].places[j].from; j++) {
            const struct measure *m = &measures[i];
            const struct place *at = &m->places[j];
            char place[32];
            if (present) /* the table says what the trace gives */
                assert_true(fabs(at->known - find(m, at, trace)) <= fmax(6e-3 * at->known, 6e-4));
            far += !compare(m->name, when(m, at, place), at->known, mean[i][j], m->tolerance,
                            m->absolute);
        }
    free(trace);
    free(made);
    free(sources);
    assert_int_equal(far, 0);
}

TEST(test_ranks_and_micro_batches_differ_as_in_the_trace) {
    static const double ranks_known[MOMENTS] = {.0274, .0185, .0147};
    static const double micro_batches_known[MOMENTS] = {.0269, .0357, .0343};
    struct history *h = zeroed(sizeof *h);
    struct sources *trace = zeroed(sizeof *trace), *made = zeroed(sizeof *made);
    bool present = read_trace(h, trace);
    int far = 0;
    generate_sources(made, 1);
    head();
    for (int i = 0; i < MOMENTS; i++) {
        char place[32];
        snprintf(place, sizeof place, "%d", moments[i]);
        if (present) {
            assert_within(ranks_known[i], rank_distance(trace, i), 5e-5);
            assert_within(micro_batches_known[i], micro_batch_distance(trace, i), 5e-5);
        }
        /* At 101 the trace's ranks are further apart than its micro-batches say. */
        far += !compare("rank from all ranks", place, ranks_known[i], rank_distance(made, i),
                        i == 0 ? 0.6 : 0.2, false);
        far += !compare("micro-batch from next", place, micro_batches_known[i],
                        micro_batch_distance(made, i), 0.2, false);
    }
    free(h);
    free(trace);
    free(made);
    assert_int_equal(far, 0);
}
