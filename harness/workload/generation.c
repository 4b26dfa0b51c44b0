/* From shares to loads: integers from here on (generate.h says how tokens choose). */
#include <math.h>
#include <stdlib.h>

#include "harness/workload/shares.h"
#include "reference/base/arena.h"
#include "reference/base/random.h"

/* The line on which experts lie end to end is top_k units long, each of 2^32 steps. */
static const int64_t unit = INT64_C(1) << 32;
/* Evenly spaced tokens must stay further apart than the rounding of an expert's end. */
static const int64_t most_tokens = INT64_C(1) << 28;

struct mp_generation {
    const struct mp_generator *kind;
    struct mp_generate_options options;
    double *share;         /* [experts], of the layer at hand */
    int64_t *end;          /* [layers][experts], where each expert's part of the line ends */
    int64_t *epoch;        /* [layers], of which `end` is; -1: none yet */
    int *tokens;           /* [ranks] */
    int64_t topics;        /* of a rank and micro-batch; 0: tokens are independent */
    int longest;           /* of tokens */
    int *order;            /* working memory of shares */
    double *height;        /* likewise */
    struct mp_arena arena; /* of the tables */
};

/* Rounds the ends of experts to steps, so that none is longer than a unit and the last expert with
 * a share ends the line. */
static void place(const struct mp_generation *own, int64_t end[]) {
    const int experts = own->options.experts;
    const int64_t length = own->options.top_k * unit;
    double sum = 0;
    int last = 0;
    for (int e = 0; e < experts; e++) {
        sum += own->share[e];
        end[e] = (int64_t)floor(sum * (double)length + 0.5);
        last = own->share[e] > 0 ? e : last;
    }
    for (int e = last; e < experts; e++)
        end[e] = length;
    for (int e = last; e > 0 && end[e - 1] < end[e] - unit; e--)
        end[e - 1] = end[e] - unit;
    for (int e = 0; e < experts; e++) {
        int64_t start = e ? end[e - 1] : 0;
        end[e] = end[e] > start + unit ? start + unit : end[e];
    }
}

/* The layer's ends at an iteration. */
static int settle(struct mp_generation *own, int64_t iteration, int layer, struct mp_error *error) {
    int64_t epoch = own->kind->epoch ? own->kind->epoch(&own->options, iteration) : 0;
    if (own->epoch[layer] == epoch)
        return MP_OK;
    const struct mp_share_wish wish = {&own->options, iteration, layer, own->order, own->height};
    MP_TRY(own->kind->share(&wish, own->share, error));
    place(own, own->end + (int64_t)layer * own->options.experts);
    own->epoch[layer] = epoch;
    return MP_OK;
}

/* Adds the routes of `tokens` that have the same u to their rank's row. */
static void choose(const struct mp_generation *own, const int64_t end[], int64_t u, uint32_t tokens,
                   uint32_t row[]) {
    int low = 0;
    for (int k = 0; k < own->options.top_k; k++) {
        int64_t place_on_line = u + k * unit;
        const int first = low;
        low += MP_BISECT(e, own->options.experts - 1 - first, end[first + e] <= place_on_line);
        row[low] += tokens;
    }
}

/* When tokens are evenly spaced and ranks have as many each, rank's token t has
 * u = ((t * ranks + rank) * unit + phase) / (ranks * tokens), rounded down: how many of them are
 * below y <= unit. */
static int64_t count_below(int64_t tokens, int64_t ranks, int64_t phase, int rank, int64_t y) {
    int64_t room = y * tokens * ranks - phase - rank * unit;
    if (room <= 0)
        return 0;
    int64_t count = (room - 1) / (ranks * unit) + 1;
    return count < tokens ? count : tokens;
}

/* The row that choose() would give for those tokens, without going through them. */
static void count_row(const struct mp_generate_options *options, int64_t tokens,
                      const int64_t end[], int64_t phase, int rank, uint32_t row[]) {
    int64_t before = 0;
    for (int e = 0; e < options->experts; e++) {
        int64_t below = end[e] / unit * tokens +
                        count_below(tokens, options->ranks, phase, rank, end[e] % unit);
        row[e] = (uint32_t)(below - before);
        before = below;
    }
}

/* Random numbers of a layer's micro-batch, and of its iteration. */
struct streams {
    uint64_t token, micro_batch, iteration;
};

/* The u of a rank's topic (topics_of), the first half of whom are the micro-batch's. */
static int64_t draw_topic(const struct mp_generation *own, const struct streams *streams, int rank,
                          uint64_t topic) {
    const uint64_t topics = (uint64_t)own->topics;
    uint64_t stream = topic < topics ? streams->micro_batch : streams->iteration;
    uint64_t number = (uint64_t)rank * 2 * topics + topic;
    return (int64_t)(mp_random_bits((uint64_t)own->options.seed, stream, number) >> 32);
}

/* A random token's u: one of its own, or that of one of its rank's topics. */
static int64_t draw(const struct mp_generation *own, const struct streams *streams, int rank,
                    int64_t number) {
    const uint64_t seed = (uint64_t)own->options.seed, half = UINT64_C(1) << 31;
    const uint64_t bits = mp_random_bits(seed, streams->token, (uint64_t)number);
    const uint64_t chance = bits & 0xFFFFFFFFu, topics = (uint64_t)own->topics;
    if (topics == 0 || chance >= half)
        return (int64_t)(bits >> 32);
    return draw_topic(own, streams, rank, chance * 2 * topics / half);
}

/* Half of a rank's tokens evenly spaced, the others shared out to its topics. */
static void choose_by_topic(const struct mp_generation *own, const int64_t end[], int64_t phase,
                            const struct streams *streams, struct mp_load *load) {
    const struct mp_generate_options *options = &own->options;
    const int64_t topics = 2 * own->topics, followers = topics ? options->tokens / 2 : 0;
    for (int rank = 0; rank < options->ranks; rank++) {
        uint32_t *row = load->count + (int64_t)rank * options->experts;
        count_row(options, options->tokens - followers, end, phase, rank, row);
        for (int64_t topic = 0; topic < topics; topic++)
            choose(own, end, draw_topic(own, streams, rank, (uint64_t)topic),
                   (uint32_t)(followers * (topic + 1) / topics - followers * topic / topics), row);
    }
}

/* Token by token, the ranks in turn. */
static void choose_all(const struct mp_generation *own, const int64_t end[], int64_t phase,
                       const struct streams *streams, struct mp_load *load) {
    const struct mp_generate_options *options = &own->options;
    const int64_t all = (int64_t)options->tokens * options->ranks;
    int64_t number = 0;
    for (int64_t i = 0; i < (int64_t)options->ranks * options->experts; i++)
        load->count[i] = 0;
    for (int token = 0; token < own->longest; token++)
        for (int rank = 0; rank < options->ranks; rank++) {
            if (token >= own->tokens[rank])
                continue;
            int64_t u = (number * unit + phase) / all;
            if (options->sampling == MP_SAMPLING_RANDOM)
                u = draw(own, streams, rank, number);
            choose(own, end, u, 1, load->count + (int64_t)rank * options->experts);
            number++;
        }
}

int mp_generation_load(struct mp_generation *generation, int64_t iteration, int micro_batch,
                       int layer, struct mp_load *load, struct mp_error *error) {
    const struct mp_generate_options *options = &generation->options;
    MP_TRY(settle(generation, iteration, layer, error));
    const int64_t *end = generation->end + (int64_t)layer * options->experts;
    const uint64_t seed = (uint64_t)options->seed;
    const uint64_t moment =
        (uint64_t)iteration * (uint64_t)options->micro_batches + (uint64_t)micro_batch;
    const uint64_t topics = mp_share_stream_of(MP_STREAM_TOPICS, layer);
    const struct streams streams = {
        mp_random_bits(seed, mp_share_stream_of(MP_STREAM_TOKENS, layer), moment),
        mp_random_bits(seed, topics, 2 * moment),
        mp_random_bits(seed, topics, 2 * (uint64_t)iteration + 1)};
    /* Ends are off by half a step, so the first token stays away from both ends of its part. */
    int64_t phase =
        unit / 4 + (int64_t)mp_random_below(seed, mp_share_stream_of(MP_STREAM_PHASE, layer),
                                            moment, (uint64_t)unit / 2);
    if (options->sampling == MP_SAMPLING_TOPICS)
        choose_by_topic(generation, end, phase, &streams, load);
    else if (options->sampling == MP_SAMPLING_RANDOM || generation->longest != options->tokens)
        choose_all(generation, end, phase, &streams, load);
    else
        for (int rank = 0; rank < options->ranks; rank++)
            count_row(options, options->tokens, end, phase, rank,
                      load->count + (int64_t)rank * options->experts);
    return MP_OK;
}

/* One rank has `largest` times the mean, the others share the rest, the first of them what does not
 * divide. */
static int share_out_tokens(struct mp_generation *own, struct mp_error *error) {
    const struct mp_generate_options *options = &own->options;
    const int ranks = options->ranks;
    const int64_t all = (int64_t)options->tokens * ranks;
    for (int rank = 0; rank < ranks; rank++)
        own->tokens[rank] = options->tokens;
    own->longest = options->tokens;
    if (options->largest <= 1) /* also of kinds that have no such option */
        return MP_OK;
    int64_t largest = (int64_t)floor(options->largest * options->tokens + 0.5),
            rest = all - largest;
    if (rest < 0 || ranks < 2)
        return mp_fail(error, MP_EINVAL,
                       "the largest of %d sources can have at most %d times the mean of %d tokens, "
                       "not %g times",
                       ranks, ranks, options->tokens, options->largest);
    int place_of_largest =
        (int)mp_random_below((uint64_t)options->seed, MP_STREAM_LARGEST, 0, (uint64_t)ranks);
    for (int rank = 0, other = 0; rank < ranks; rank++)
        own->tokens[rank] = rank == place_of_largest
                                ? (int)largest
                                : (int)(rest / (ranks - 1) + (other++ < rest % (ranks - 1)));
    own->longest = (int)largest;
    return MP_OK;
}

/* Half of a rank's tokens follow one of its topics each, all tokens of a topic going the same way:
 * a quarter of the tokens those of the micro-batch, a quarter those of the iteration.  A number of
 * topics J adds 1 / (16 J) to the variance 1 / tokens of a share, to each: J for a standard
 * deviation `dispersion` times as large between micro-batches. */
static int64_t topics_of(const struct mp_generate_options *options) {
    double more = options->dispersion * options->dispersion - 1;
    return more > 0 ? 1 + (int64_t)(options->tokens / (16 * more)) : 0;
}

static int fill(struct mp_generation *own, struct mp_error *error) {
    const struct mp_generate_options *options = &own->options;
    const size_t experts = (size_t)options->experts, layers = (size_t)options->layers;
    MP_TAKE_EACH(&own->arena, experts, own->share, own->height);
    MP_TAKE(&own->arena, own->order,
            options->ranks > options->experts ? options->ranks : options->experts);
    MP_TAKE(&own->arena, own->end, layers * experts);
    MP_TAKE(&own->arena, own->epoch, layers);
    MP_TAKE(&own->arena, own->tokens, options->ranks);
    own->topics = topics_of(options);
    MP_TRY(mp_arena_check(&own->arena, error));
    for (int layer = 0; layer < options->layers; layer++)
        own->epoch[layer] = -1;
    MP_TRY(share_out_tokens(own, error));
    for (int layer = 0; layer < options->layers; layer++)
        MP_TRY(settle(own, options->first_iteration, layer, error));
    return MP_OK;
}

int mp_generation_create(const struct mp_generator *kind, const struct mp_generate_options *options,
                         struct mp_generation **generation, struct mp_error *error) {
    if (options->top_k > options->experts)
        return mp_fail(error, MP_EINVAL,
                       "a token can't go to %d distinct experts where there are %d", options->top_k,
                       options->experts);
    if ((int64_t)options->tokens * options->ranks > most_tokens)
        return mp_fail(error, MP_ELIMIT,
                       "%d tokens of %d ranks are more than the %lld that a micro-batch can have",
                       options->tokens, options->ranks, (long long)most_tokens);
    struct mp_generation *own;
    MP_TRY(MP_NEW(own, 1, error));
    own->kind = kind;
    own->options = *options;
    int code = fill(own, error);
    if (code)
        mp_generation_destroy(own);
    else
        *generation = own;
    return code;
}

void mp_generation_destroy(struct mp_generation *generation) {
    if (!generation)
        return;
    mp_arena_release(&generation->arena);
    free(generation);
}
