/* The kinds, their options, and the stream that runs through a generation's blocks. */
#include "harness/workload/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/shares.h"

#define FIELD(field) offsetof(struct mp_generate_options, field)

const struct mp_option mp_generate_options[] = {
    {"seed", MP_OPTION_INT64, FIELD(seed), "", "1", 0, 9007199254740992.0, NULL,
     "everything random is drawn from it"},
    {"iterations", MP_OPTION_INT64, FIELD(iterations), "iterations", "100", 1, 1e12, NULL,
     "how many are written"},
    {"first-iteration", MP_OPTION_INT64, FIELD(first_iteration), "", "0", 0, 1e12, NULL,
     "number of the first; the loads of an iteration don't depend on where a trace starts"},
    {"layers", MP_OPTION_INT, FIELD(layers), "layers", "12", 1, 65536, NULL, "layers with experts"},
    {"experts", MP_OPTION_INT, FIELD(experts), "experts", "64", 1, 65536, NULL,
     "experts of each layer"},
    {"ranks", MP_OPTION_INT, FIELD(ranks), "ranks", "16", 1, 65536, NULL, "sources of tokens"},
    {"micro-batches", MP_OPTION_INT, FIELD(micro_batches), "micro-batches", "1", 1, 65536, NULL,
     "micro-batches of each iteration"},
    {"tokens", MP_OPTION_INT, FIELD(tokens), "tokens", "2048", 1, 1 << 24, NULL,
     "tokens of a rank in a micro-batch (w4: on average)"},
    {"top-k", MP_OPTION_INT, FIELD(top_k), "experts", "2", 1, 64, NULL,
     "distinct experts that each token goes to"},
    {0}};

#define SAMPLING                                                                                   \
    {                                                                                              \
        "sampling", MP_OPTION_CHOICE, FIELD(sampling), "", "exact", 0, 0, "exact random",          \
            "exact: an expert's total is within one route of its share; random: tokens choose "    \
            "independently"                                                                        \
    }
#define EXPONENT(text)                                                                             \
    {                                                                                              \
        "exponent", MP_OPTION_DOUBLE, FIELD(exponent), "", text, 0, 16, NULL,                      \
            "the larger, the more uneven the loads"                                                \
    }
#define HEAT                                                                                       \
    {"heat",                                                                                       \
     MP_OPTION_DOUBLE,                                                                             \
     FIELD(heat),                                                                                  \
     "",                                                                                           \
     "0.5",                                                                                        \
     0,                                                                                            \
     1,                                                                                            \
     NULL,                                                                                         \
     "share of all routes that goes to the hot experts"},                                          \
    {                                                                                              \
        "hot-experts", MP_OPTION_COUNT, FIELD(hot_experts), "experts", "auto", -1, 65536, NULL,    \
            "how many are hot; auto: a sixteenth, at least one"                                    \
    }

static const struct mp_option equal_options[] = {SAMPLING, {0}};
static const struct mp_option zipf_options[] = {
    EXPONENT("0.8"),
    SAMPLING,
    {"period", MP_OPTION_INT, FIELD(period), "iterations", "0", 0, 1e9, NULL,
     "how long the order stays before another is drawn; 0: always; 1: what was says nothing of "
     "what comes"},
    {0}};
static const struct mp_option power_options[] = {EXPONENT("1.2"), SAMPLING, {0}};
static const struct mp_option lognormal_options[] = {
    {"max-violation", MP_OPTION_DOUBLE, FIELD(violation), "", "1", 0, 65536, NULL,
     "largest total of an expert over the mean, minus one"},
    SAMPLING,
    {0}};
static const struct mp_option heat_options[] = {HEAT, {0}};
static const struct mp_option ragged_options[] = {
    {"largest", MP_OPTION_DOUBLE, FIELD(largest), "", "2", 1, 65536, NULL,
     "tokens of the largest source over the mean; the others share the rest equally"},
    {0}};
static const struct mp_option empty_options[] = {
    {"empty", MP_OPTION_DOUBLE, FIELD(empty), "", "0.25", 0, 1, NULL,
     "share of the experts or ranks that get nothing; at least one does"},
    {"what", MP_OPTION_CHOICE, FIELD(empty_what), "", "experts", 0, 0, "experts ranks",
     "experts anywhere, or all experts of some ranks"},
    {0}};
static const struct mp_option rotating_options[] = {HEAT,
                                                    {"period", MP_OPTION_INT, FIELD(period),
                                                     "iterations", "50", 1, 1e9, NULL,
                                                     "how long the heat stays where it is"},
                                                    {0}};
static const struct mp_option dynamics_options[] = {
    {"pace", MP_OPTION_DOUBLE, FIELD(pace), "", "1", 1e-3, 1e6, NULL,
     "how many times as long everything takes as in the trace"},
    {"spread", MP_OPTION_DOUBLE, FIELD(spread), "", "1", 0, 4, NULL,
     "factor to the spread of log shares: 0 all equal, 1 as in the trace"},
    {"sampling", MP_OPTION_CHOICE, FIELD(sampling), "", "random", 0, 0, "exact random topics",
     "random: ranks and micro-batches differ as in the trace; exact: they have equal shares, and "
     "generating is many times faster; topics: as fast, and they differ by topics alone"},
    {"dispersion", MP_OPTION_DOUBLE, FIELD(dispersion), "", "1.3", 1, 100, NULL,
     "unless sampling is exact, standard deviation of a micro-batch's counts over that of "
     "independent tokens: half of them follow topics of their rank"},
    {0}};
static const struct mp_option burst_options[] = {
    HEAT,
    {"period", MP_OPTION_INT, FIELD(period), "iterations", "50", 2, 1e9, NULL,
     "from one burst to the next; a burst is in the middle"},
    {"length", MP_OPTION_INT, FIELD(length), "iterations", "3", 1, 1e9, NULL, "of a burst"},
    {0}};

const struct mp_generator mp_generators[] = {
    {"balanced", "every expert gets the same share", "MegaBlocks: route index modulo experts",
     "Totals of experts differ by one route at most, and by none if the routes divide by the "
     "experts; however few tokens there are, they are spread over all ranks and experts.",
     equal_options, mp_share_equal, NULL},
    {"zipf", "shares fall with a power of the expert's place", "TensorRT-LLM",
     "The i-th hottest expert's share is proportional to i^-exponent; each layer has an order of "
     "its own.  An exponent at which the hottest expert would have more than 1 / top-k of the "
     "routes is refused.",
     zipf_options, mp_share_zipf, mp_epoch_period},
    {"power", "shares drawn from a power law", "aiconfigurator",
     "Popularities are drawn from a density proportional to x^-exponent between 1 and 0.8 of all "
     "tokens by its inverse, one per expert and layer.  Shares above 1 / top-k are cut to it, and "
     "the rest goes to the other experts in proportion.",
     power_options, mp_share_power, NULL},
    {"lognormal", "lognormal shares with a wanted max violation", "vLLM",
     "Shares are proportional to exp(sigma z), z normal, one per expert and layer; sigma is found "
     "by bisection for each layer so that the largest total over the mean, minus one, is the "
     "wanted.",
     lognormal_options, mp_share_lognormal, NULL},
    {"w0", "balanced: experts, ranks and sources equal", "",
     "What a balancer costs where there is nothing to balance.", NULL, mp_share_equal, NULL},
    {"w1", "hot experts at random places", "",
     "Skew between experts: a set drawn for each layer gets the heat in equal parts, the other "
     "experts the rest.",
     heat_options, mp_share_hot_experts, NULL},
    {"w2", "the same heat on one rank", "",
     "Skew between ranks, and the inbound link of one: all hot experts of a layer are on one rank, "
     "where rank r has the r-th of equal contiguous parts of the experts.",
     heat_options, mp_share_hot_rank, NULL},
    {"w3", "the same heat spread over ranks", "",
     "Beside w2 it tells the place of heat from its amount: as many hot experts, no rank with more "
     "than another's and one.",
     heat_options, mp_share_spread, NULL},
    {"w4", "ragged sources", "",
     "Imbalance of senders: one rank has more tokens than the others, experts are balanced.",
     ragged_options, mp_share_equal, NULL},
    {"w5", "experts or ranks without load", "",
     "Empty multiplications and messages without bytes: some experts, or all of some ranks, get no "
     "route; the others are equal.",
     empty_options, mp_share_empty, NULL},
    {"w6", "a hot spot that moves", "",
     "Plans that are out of date: the heat of w1 moves to other experts every period.",
     rotating_options, mp_share_hot_experts, mp_epoch_period},
    {"w7", "short bursts of heat", "",
     "Reaction and recovery: balanced, then the heat of w1 for some iterations, then balanced.",
     burst_options, mp_share_burst, mp_epoch_burst},
    {"dynamics", "loads as they move in training", "thu-pacman/SmartMoE-AE: routing trace of a GPT",
     "Training without a balance loss: shares start near uniform, within some ten iterations a few "
     "experts have nearly everything, others recover until iteration 400 or so, then a pattern "
     "that hardly moves gets slowly more uneven.  Log shares walk at random first and are white "
     "noise around their place later; layers differ in spread and pace.  Fitted to statistics of a "
     "trace of 24 layers, 32 experts and top-2; no share is above 1 / top-k.",
     dynamics_options, mp_share_dynamics, mp_epoch_dynamics},
    {0}};

const struct mp_generator *mp_generator_find(const char *name, struct mp_error *error) {
    const char *known[MP_LENGTH(mp_generators)];
    int count = 0;
    for (const struct mp_generator *kind = mp_generators; kind->name; kind++) {
        if (!strcmp(kind->name, name))
            return kind;
        known[count++] = kind->name;
    }
    known[count] = NULL;
    mp_fail(error, MP_ENOTFOUND,
            "there is no generator \"%.80s\"%s; moeperf generate --help names them", name,
            mp_meant(name, known).text);
    return NULL;
}

int mp_generate_set_defaults(const struct mp_generator *kind, struct mp_generate_options *options,
                             struct mp_error *error) {
    memset(options, 0, sizeof *options);
    MP_TRY(mp_options_set_defaults(mp_generate_options, options, error));
    if (kind->options)
        MP_TRY(mp_options_set_defaults(kind->options, options, error));
    return MP_OK;
}

int mp_generate_set(const struct mp_generator *kind, struct mp_generate_options *options,
                    const char *name, const char *text, const char *where, struct mp_error *error) {
    static const struct mp_option none[] = {{0}};
    if (mp_options_find(mp_generate_options, name))
        return mp_options_set(mp_generate_options, options, "generators", name, text, where, error);
    char owner[64];
    snprintf(owner, sizeof owner, "generator %s", kind->name);
    return mp_options_set(kind->options ? kind->options : none, options, owner, name, text, where,
                          error);
}

/* A generation as a stream. */
struct generated {
    struct mp_generation *generation;
    int64_t first, end; /* iterations; first: -1 once it has been reached */
};

static int next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct generated *own = self;
    if (own->first >= 0)
        block->iteration = own->first;
    own->first = -1;
    *end = block->iteration == own->end;
    return *end ? MP_OK
                : mp_generation_load(own->generation, block->iteration, block->micro_batch,
                                     block->layer, &block->load, error);
}

static void destroy(void *self) {
    struct generated *own = self;
    mp_generation_destroy(own->generation);
    free(own);
}

static const struct mp_trace_stream_operations operations = {next, destroy};

/* "generator zipf: seed 1, iterations 100, ..."; NULL: no memory. */
static char *describe(const struct mp_generator *kind, const struct mp_generate_options *options) {
    enum { OPTION_TEXT = 128 };
    char *text = NULL, value[OPTION_TEXT];
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return NULL;
    fprintf(stream, "generator %s", kind->name);
    const struct mp_option *tables[] = {mp_generate_options, kind->options};
    const char *separator = ": ";
    for (int i = 0; i < 2; i++)
        for (const struct mp_option *option = tables[i]; option && option->name; option++) {
            fprintf(stream, "%s%s %s", separator, option->name,
                    mp_options_format(option, options, value, sizeof value));
            separator = ", ";
        }
    bool failed = ferror(stream);
    if (fclose(stream) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

int mp_generate(const struct mp_generator *kind, const struct mp_generate_options *options,
                struct mp_trace_stream **stream, struct mp_error *error) {
    struct mp_generation *generation;
    MP_TRY(mp_generation_create(kind, options, &generation, error));
    struct mp_trace_info info = {.shape = {options->ranks, options->experts, options->layers,
                                           options->micro_batches, options->top_k},
                                 .source = describe(kind, options),
                                 .notes = calloc(1, 1),
                                 .ragged = kind->options == ragged_options};
    struct generated *own = calloc(1, sizeof *own);
    if (!own) {
        mp_trace_info_destroy(&info);
        mp_generation_destroy(generation);
        return mp_no_memory(error);
    }
    *own = (struct generated){.generation = generation,
                              .first = options->first_iteration,
                              .end = options->first_iteration + options->iterations};
    int code = info.source && info.notes ? MP_OK : mp_no_memory(error);
    return mp_trace_stream_create(code, &operations, own, &info, stream, error);
}
