/* Loads of a predicted job: a trace, a generator, or what the job's routing replays. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/predict/job.h"
#include "harness/predict/loads_wanted.h"
#include "harness/workload/formats.h"
#include "harness/workload/generate.h"
#include "harness/workload/named.h"
#include "harness/workload/reshape.h"

struct mp_trace_wanted predict_loads_wanted(const struct mp_predict_job *job,
                                            const struct mp_cluster *cluster) {
    int ranks = mp_cluster_ranks(cluster), micro_batches = job->options.micro_batches;
    const struct mp_job *sizes = &job->file.job;
    return (struct mp_trace_wanted){
        .shape = {.ranks = ranks,
                  .experts = sizes->experts,
                  .layers = sizes->layers,
                  .micro_batches = micro_batches,
                  .top_k = mp_job_top_k(sizes)},
        .tokens = mp_job_tokens(sizes) / ranks / micro_batches,
        .iterations = sizes->iterations,
    };
}

/* ---- replayed routing: the loads that the trainer would make, the same in all iterations ---- */

struct replay {
    struct mp_trace_shape shape;
    int64_t iterations, block; /* blocks so far */
    uint32_t *count;           /* [ranks][experts], owned */
};

static int replay_next(void *self, struct mp_trace_block *block, bool *end,
                       struct mp_error *error) {
    (void)error;
    struct replay *replay = self;
    int layers = replay->shape.layers, per_iteration = layers * replay->shape.micro_batches;
    block->iteration = replay->block / per_iteration;
    block->micro_batch = (int)(replay->block % per_iteration / layers);
    block->layer = (int)(replay->block % layers);
    *end = block->iteration >= replay->iterations;
    if (*end)
        return MP_OK;
    size_t counts = (size_t)replay->shape.ranks * (size_t)replay->shape.experts;
    memcpy(block->load.count, replay->count, counts * sizeof *replay->count);
    replay->block++;
    return MP_OK;
}

static void replay_destroy(void *self) {
    struct replay *replay = self;
    free(replay->count);
    free(replay);
}

static int fill_replay(const struct mp_job *job, const struct mp_trace_wanted *wanted,
                       struct replay *replay, struct mp_error *error) {
    size_t experts = (size_t)job->experts;
    MP_TRY(MP_NEW(replay->count, (size_t)wanted->shape.ranks * experts, error));
    for (int r = 0; r < wanted->shape.ranks; r++)
        MP_TRY(mp_job_replay(job, r, wanted->tokens * wanted->shape.top_k,
                             replay->count + (size_t)r * experts, error));
    return MP_OK;
}

static int open_replay(const struct mp_job *job, const struct mp_trace_wanted *wanted,
                       struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {replay_next, replay_destroy};
    char workload[128];
    struct replay *replay = calloc(1, sizeof *replay);
    struct mp_trace_info info = {.shape = wanted->shape,
                                 .source = strdup(mp_job_workload(job, workload, sizeof workload)),
                                 .notes = strdup("replayed as the trainer would")};
    if (!replay) {
        mp_trace_info_destroy(&info);
        return mp_no_memory(error);
    }
    replay->shape = wanted->shape;
    replay->iterations = wanted->iterations;
    int code =
        info.source && info.notes ? fill_replay(job, wanted, replay, error) : mp_no_memory(error);
    return mp_trace_stream_create(code, &operations, replay, &info, stream, error);
}

/* ---- named loads ---- */

static int open_named(const char *text, const struct mp_trace_wanted *wanted,
                      struct mp_trace_stream **stream, struct mp_error *error) {
    size_t length = strcspn(text, " \t");
    bool is_known = mp_trace_names_generator(text) || mp_format_guess(text);
    if (!is_known && strcspn(text, "./") >= length && access(text, F_OK)) { /* no file's name */
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        mp_generator_find(word, error);
        mp_error_prefix(error, "loads");
        return MP_ENOTFOUND;
    }
    return mp_trace_open_named(text, wanted, stream, error);
}

/* Nothing makes loads of so many experts per token of others. */
static bool differs_in_choices(const struct mp_trace_shape *given,
                               const struct mp_trace_shape *wanted) {
    return given->top_k > 0 && given->top_k != wanted->top_k;
}

/* Loads of all sources together, which any number of ranks can have made, each as much as the
 * others; and of a whole run, of which a step is as large as the job's. */
static bool says_no_sources(const struct mp_trace_info *info) {
    return info->of_run || info->shape.ranks == 1;
}

static int fail_unfit(const char *loads, const struct mp_trace_shape *given,
                      const struct mp_trace_shape *wanted, struct mp_error *error) {
    char has[160], needs[160], way[96] = ", or have the loads fitted (--fit, in a suite fit: yes)";
    if (differs_in_choices(given, wanted))
        snprintf(way, sizeof way, " (gate=softmax top-k=%d); experts per token are never fitted",
                 given->top_k);
    return mp_fail(error, MP_EINVAL,
                   "loads: %.200s has %s; the prediction has %s: set those to the loads'%s", loads,
                   mp_trace_shape_describe(given, has, sizeof has),
                   mp_trace_shape_describe(wanted, needs, sizeof needs), way);
}

static int fit(const char *loads, const struct mp_trace_wanted *wanted,
               struct mp_trace_stream **stream, struct mp_error *error) {
    int given = mp_trace_stream_info(*stream)->shape.micro_batches;
    const struct mp_reshape reshape = {
        .ranks = wanted->shape.ranks,
        .experts = wanted->shape.experts,
        .layers = wanted->shape.layers,
        .micro_batches = given == wanted->shape.micro_batches ? given : 1,
        .tokens = wanted->tokens,
        .top_k = wanted->shape.top_k,
    };
    struct mp_trace_stream *source = *stream;
    *stream = NULL;
    return mp_trace_reshape(source, &reshape, stream, error)
               ? mp_error_prefix(error, "loads: %.200s", loads)
               : MP_OK;
}

int mp_predict_job_loads(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_trace_stream **stream, struct mp_error *error) {
    const struct mp_trace_wanted wanted = predict_loads_wanted(job, cluster);
    const struct mp_job *sizes = &job->file.job;
    const char *loads = *job->loads                          ? job->loads
                        : sizes->routing == MP_ROUTING_TRACE ? sizes->trace
                                                             : "";
    *stream = NULL;
    if (!*loads && sizes->routing == MP_ROUTING_GATE)
        return mp_fail(error, MP_EINVAL,
                       "loads: not given; a prediction needs a trace (--trace FILE), a generator "
                       "(--loads TEXT), or routing balanced, skewed or load (there is no gate to "
                       "ask)");
    if (!*loads)
        return open_replay(sizes, &wanted, stream, error);
    int code = open_named(loads, &wanted, stream, error);
    const struct mp_trace_info *info = code ? NULL : mp_trace_stream_info(*stream);
    struct mp_trace_shape known = wanted.shape; /* what the loads can't leave open */
    if (!code && says_no_sources(info))
        known.ranks = 1;
    if (!code && (job->fit ? differs_in_choices(&info->shape, &wanted.shape)
                           : !mp_trace_shape_fits(&info->shape, &known)))
        code = fail_unfit(loads, &info->shape, &wanted.shape, error);
    if (!code && (job->fit || says_no_sources(info)))
        code = fit(loads, &wanted, stream, error);
    if (code) {
        mp_trace_stream_destroy(*stream);
        *stream = NULL;
    }
    return code;
}

int predict_loads_check(const struct mp_trace_wanted *job, bool fewer,
                        const struct mp_trace_block *block, struct mp_error *error) {
    const struct mp_trace_shape *shape = &job->shape;
    int64_t wanted = job->tokens * shape->top_k * shape->ranks;
    int64_t total = mp_load_total(&block->load), difference = llabs(total - wanted);
    if (difference * 100 <= wanted)
        return MP_OK;
    if (fewer && total < wanted && total * shape->top_k >= wanted)
        return MP_OK;
    return mp_fail(
        error, MP_EINVAL,
        "loads: iteration %lld has %lld routes in a layer and micro-batch, and the "
        "prediction's batch makes %lld (%d ranks with %lld tokens to %d experts each): "
        "set batch, sequence and top-k to the loads', or have the loads fitted (--fit, in a "
        "suite fit: yes)",
        (long long)block->iteration, (long long)total, (long long)wanted, shape->ranks,
        (long long)job->tokens, shape->top_k);
}

/* ---- a job for given loads ---- */

/* As many tokens as the loads have routes for, in sequences as long as they are if that is
 * possible. */
static void adopt_tokens(struct mp_job *job, int64_t tokens, int64_t parts) {
    enum { SEQUENCE_MOST = 65536 };
    int64_t step = mp_job_step_tokens(job), sequences = tokens / step;
    if (tokens % step == 0 && sequences % parts == 0 && sequences <= INT32_MAX) {
        job->batch = (int)sequences;
    } else if (job->mode != MP_MODE_DECODE && tokens % parts == 0 &&
               tokens / parts <= SEQUENCE_MOST && parts <= INT32_MAX) {
        job->sequence = (int)(tokens / parts);
        job->batch = (int)parts;
    }
}

/* Models whose files say no more of themselves than how many layers and experts they have: what a
 * prediction needs beside that, from the model's published configuration. */
static const struct known_model {
    const char *name, *source;
    int layers, experts; /* with experts; of a layer */
    int top_k, width, heads, expert_width, shared_experts;
} known_models[] = {
    {"DeepSeek-V3", "deepseek-ai/DeepSeek-V3, config.json", 58, 256, 8, 7168, 128, 2048, 1},
};

static const struct known_model *find_model(const struct mp_trace_shape *shape) {
    for (size_t i = 0; i < sizeof known_models / sizeof *known_models; i++)
        if (shape->top_k == 0 && shape->layers == known_models[i].layers &&
            shape->experts == known_models[i].experts)
            return &known_models[i];
    return NULL;
}

const char *predict_loads_model(const struct mp_job *job, char *text, size_t size) {
    const struct mp_trace_shape shape = {.layers = job->layers, .experts = job->experts};
    const struct known_model *model = find_model(&shape);
    if (!model || job->width != model->width || job->expert_width != model->expert_width)
        return NULL;
    snprintf(text, size,
             "loads: %d layers of %d experts without more words are taken for %s's (%s): %d "
             "experts per token, width %d, %d heads, gated experts of width %d, %d shared, unless "
             "set; its attention is predicted as if it were a plain one",
             model->layers, model->experts, model->name, model->source, model->top_k, model->width,
             model->heads, model->expert_width, model->shared_experts);
    return text;
}

static int adopt_model(struct mp_predict_job *job, const struct known_model *model,
                       struct mp_error *error) {
    struct mp_job *sizes = &job->file.job;
    const struct mp_gate_kind *gate = mp_gate_kinds[mp_gate_of_choices(model->top_k)];
    int code = mp_job_set_gate(sizes, gate->name, job->loads, error);
    sizes->top_k = model->top_k;
    sizes->width = model->width;
    sizes->heads = model->heads;
    sizes->expert_width = model->expert_width;
    sizes->shared_experts = model->shared_experts;
    job->options.expert_matrices = 3;
    return code;
}

int mp_predict_job_adopt(struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_error *error) {
    const struct mp_trace_wanted wanted = predict_loads_wanted(job, cluster);
    const struct mp_trace_block *block = NULL;
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    struct mp_job *sizes = &job->file.job;
    if (!*job->loads || mp_trace_names_generator(job->loads))
        return MP_OK;
    MP_TRY(open_named(job->loads, &wanted, &stream, error));
    const struct mp_trace_shape shape = mp_trace_stream_info(stream)->shape;
    const struct known_model *model = find_model(&shape);
    const bool of_run = mp_trace_stream_info(stream)->of_run;
    const bool is_split = says_no_sources(mp_trace_stream_info(stream)); /* to whole tokens each */
    MP_TRY(mp_trace_next(stream, &block, error));
    sizes->layers = shape.layers;
    sizes->experts = shape.experts;
    if (shape.top_k > 0) {
        const struct mp_gate_kind *gate = mp_gate_kinds[mp_gate_of_choices(shape.top_k)];
        MP_TRY(mp_job_set_gate(sizes, gate->name, job->loads, error));
        sizes->top_k = shape.top_k;
    }
    if (model)
        MP_TRY(adopt_model(job, model, error));
    job->options.micro_batches = shape.micro_batches;
    if (!block || job->fit || of_run)
        return MP_OK;
    const int64_t parts = (int64_t)wanted.shape.ranks * shape.micro_batches;
    int64_t tokens = mp_load_total(&block->load) / mp_job_top_k(sizes) * shape.micro_batches;
    if (is_split && tokens > parts)
        tokens -= tokens % parts;
    adopt_tokens(sizes, tokens, parts);
    return MP_OK;
}
