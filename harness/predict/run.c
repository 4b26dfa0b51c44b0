/* A predicted job from beginning to end. */
#include <stdlib.h>
#include <string.h>

#include "harness/predict/bound.h"
#include "harness/predict/loads_wanted.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "reference/plan/routes.h"

/* Fields of struct mp_prediction that are put together as means; the others are sums. */
#define MEAN(member) offsetof(struct mp_prediction, member)
static const size_t means[] = {MEAN(seconds),
                               MEAN(compute_seconds),
                               MEAN(exposed_seconds),
                               MEAN(late_seconds),
                               MEAN(exchange_seconds),
                               MEAN(expert_seconds),
                               MEAN(expert_seconds_max),
                               MEAN(moe_seconds),
                               MEAN(attention_seconds),
                               MEAN(transfer_seconds),
                               MEAN(transfer_exposed_seconds),
                               MEAN(move_seconds),
                               MEAN(all_reduce_exposed_seconds),
                               MEAN(imbalance),
                               MEAN(port_seconds),
                               MEAN(serial_seconds)};
enum { MEANS = sizeof means / sizeof *means };

static double *field(struct mp_prediction *prediction, size_t offset) {
    return (double *)((char *)prediction + offset);
}

/* Loads of one iteration, [micro_batches][layers], and how the stream is read into them. */
struct reader {
    struct mp_trace_stream *stream;
    struct mp_trace_wanted wanted;
    int micro_batches; /* of the stream: as many as wanted, or one that stands for all */
    struct mp_load *load;
    int blocks; /* in `load` */
    bool fewer; /* the job's gate may leave choices */
};

static void close_reader(struct reader *reader) {
    for (int i = 0; reader->load && i < reader->blocks; i++)
        mp_load_destroy(&reader->load[i]);
    free(reader->load);
    mp_trace_stream_destroy(reader->stream);
}

static int open_reader(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                       struct reader *reader, struct mp_error *error) {
    memset(reader, 0, sizeof *reader);
    reader->wanted = predict_loads_wanted(job, cluster);
    reader->fewer = mp_job_takes_fewer(&job->file.job);
    const struct mp_trace_shape *shape = &reader->wanted.shape;
    int code = mp_predict_job_loads(job, cluster, &reader->stream, error);
    if (code)
        return code;
    reader->micro_batches = mp_trace_stream_info(reader->stream)->shape.micro_batches;
    reader->blocks = shape->layers * shape->micro_batches;
    reader->load = calloc((size_t)reader->blocks, sizeof *reader->load);
    if (!reader->load)
        code = mp_fail(error, MP_ENOMEM, "no memory for loads of %d layers", shape->layers);
    for (int i = 0; i < reader->blocks && !code; i++)
        code = mp_load_create(shape->ranks, shape->experts, &reader->load[i], error);
    if (code)
        close_reader(reader);
    return code;
}

static int take_block(struct reader *reader, int number, const struct mp_load *load,
                      struct mp_error *error) {
    mp_load_copy(&reader->load[number], load);
    int code = mp_load_copy_routes(&reader->load[number], load, error);
    return code ? code : mp_load_count_first(&reader->load[number], error);
}

/* `number` becomes what the loads call the iteration. */
static int read_iteration(struct reader *reader, int64_t *number, bool *end,
                          struct mp_error *error) {
    const struct mp_trace_block *block;
    int layers = reader->wanted.shape.layers, read = reader->micro_batches * layers;
    int code = MP_OK;
    for (int i = 0; i < read; i++) {
        code = mp_trace_next(reader->stream, &block, error);
        *end = !code && !block; /* between iterations only: streams have whole ones */
        if (code || *end)
            return code;
        if (block->layer == 0 &&
            (code = predict_loads_check(&reader->wanted, reader->fewer, block, error)))
            return code;
        *number = block->iteration;
        code = take_block(reader, i, &block->load, error);
        if (code)
            return code;
    }
    if (*number > INT32_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "loads: iteration %lld: what is recorded has numbers up to %d",
                       (long long)*number, INT32_MAX);
    for (int i = read; i < reader->blocks && !code; i++)
        code = take_block(reader, i, &reader->load[i - layers], error);
    return code;
}

/* ---- summary ---- */

struct times {
    double *seconds; /* owned */
    int64_t count;
};

static int add_time(struct times *times, double seconds, struct mp_error *error) {
    if (!MP_ROOM(times->seconds, times->count))
        return mp_fail(error, MP_ENOMEM, "no memory for the times of more than %lld iterations",
                       (long long)times->count);
    times->seconds[times->count++] = seconds;
    return MP_OK;
}

static void add_prediction(struct mp_prediction *sum, const struct mp_prediction *one) {
    struct mp_prediction copy = *one;
    for (int i = 0; i < MEANS; i++)
        *field(sum, means[i]) += *field(&copy, means[i]);
    sum->routes += one->routes;
    sum->dropped += one->dropped;
    sum->copies += one->copies;
    for (int stage = 0; stage < MP_STAGES; stage++)
        sum->bytes[stage] += one->bytes[stage];
    sum->exchanged_bytes += one->exchanged_bytes;
}

static void finish_summary(const struct mp_predict_job *job, const struct mp_predictor *predictor,
                           struct times *times, struct mp_prediction_summary *summary) {
    summary->iterations = times->count;
    for (int i = 0; i < MEANS; i++)
        *field(&summary->mean, means[i]) /= (double)times->count;
    summary->seconds_mean = summary->mean.seconds;
    summary->seconds_median = mp_median_of(times->seconds, times->count); /* sorts them */
    summary->seconds_p99 = times->seconds[(99 * times->count + 99) / 100 - 1];
    double tokens = (double)mp_job_tokens(&job->file.job);
    summary->tokens_per_second = summary->seconds_median > 0 ? tokens / summary->seconds_median : 0;
    mp_predictor_memory(predictor, &summary->memory, &summary->memory_rank);
    summary->shards = mp_predictor_shards(predictor);
    summary->out_of_memory = summary->memory.total > summary->memory.limit;
}

/* ---- running ---- */

/* One of the jobs that meet the same loads. */
struct running {
    const struct mp_predict_job *job;
    struct mp_predictor *predictor;
    struct times times;
    struct mp_prediction_summary *summary;
    struct mp_error *error; /* its own */
};

static int begin(struct running *running, const struct mp_predict_job *job,
                 const struct mp_cluster *cluster, const struct mp_predict_sink *sink,
                 struct mp_prediction_summary *summary, struct mp_error *error) {
    const struct mp_predictor_config config = {.cluster = cluster,
                                               .job = &job->file,
                                               .options = &job->options,
                                               .check_plans = job->file.job.check_plans,
                                               .first_iteration = job->first_iteration,
                                               .sink = sink};
    *running = (struct running){.job = job, .summary = summary, .error = error};
    memset(summary, 0, sizeof *summary);
    return mp_predictor_create(&config, &running->predictor, error);
}

static int step(struct running *running, const struct mp_load load[], int64_t number,
                struct mp_prediction *prediction) {
    mp_predictor_call(running->predictor, number);
    int code = mp_predictor_step(running->predictor, load, prediction, running->error);
    if (!code)
        code = add_time(&running->times, prediction->seconds, running->error);
    if (!code)
        add_prediction(&running->summary->mean, prediction);
    return code;
}

static void end(struct running *running, bool is_whole) {
    if (is_whole)
        finish_summary(running->job, running->predictor, &running->times, running->summary);
    mp_predictor_destroy(running->predictor);
    free(running->times.seconds);
}

static int fail_empty(const struct reader *reader, struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "there is no load in %s",
                   mp_trace_stream_info(reader->stream)->source);
}

/* bound: NULL for none. */
static int run_iterations(struct running *running, struct reader *reader, struct mp_bound *bound,
                          const struct mp_predict_watch *watch) {
    bool ended = false, go_on = true;
    int64_t number = 0;
    int code = MP_OK;
    while (!code && go_on && running->times.count < running->job->file.job.iterations) {
        struct mp_prediction prediction;
        code = read_iteration(reader, &number, &ended, running->error);
        if (code || ended)
            break;
        code = step(running, reader->load, number, &prediction);
        if (!code && bound)
            code = mp_bound_seconds(bound, reader->load, &prediction.bound_seconds, running->error);
        go_on = code || !watch || !watch->step || watch->step(watch->context, &prediction);
    }
    return code || running->times.count ? code : fail_empty(reader, running->error);
}

static bool wants_bounds(const struct running *running, const struct mp_predict_job *job,
                         const struct mp_cluster *cluster, const struct mp_predict_watch *watch) {
    const struct mp_job *sizes = &job->file.job;
    int shards = mp_predictor_shards(running->predictor);
    return watch && watch->bounds &&
           mp_bound_covers(job->file.system, sizes->exchange, false, shards) &&
           mp_bound_is_quick(cluster, sizes, sizes->iterations);
}

int mp_predict_job_run(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                       const struct mp_predict_sink *sink, const struct mp_predict_watch *watch,
                       struct mp_prediction_summary *summary, struct mp_error *error) {
    struct reader reader;
    struct running running;
    struct mp_bound *bound = NULL;
    memset(summary, 0, sizeof *summary);
    int code = open_reader(job, cluster, &reader, error);
    if (code)
        return code;
    code = begin(&running, job, cluster, sink, summary, error);
    if (!code && wants_bounds(&running, job, cluster, watch))
        code = mp_known_bounds_take(watch->bounds, job, cluster, &bound, error);
    if (!code)
        code = run_iterations(&running, &reader, bound, watch);
    end(&running, !code);
    close_reader(&reader);
    return code;
}

/* ---- the bound ---- */

static void finish_bound(struct times *times, struct mp_predict_bound *out) {
    out->iterations = times->count;
    for (int64_t i = 0; i < times->count; i++)
        out->seconds_mean += times->seconds[i] / (double)times->count;
    out->seconds_median = mp_median_of(times->seconds, times->count);
}

static int bound_iteration(struct mp_bound *bound, const struct mp_load load[], struct times *times,
                           struct mp_error *error) {
    double seconds;
    int code = mp_bound_seconds(bound, load, &seconds, error);
    return code ? code : add_time(times, seconds, error);
}

static int bound_iterations(const struct mp_predict_job *job, struct reader *reader,
                            struct mp_bound *bound, const volatile sig_atomic_t *signals,
                            struct times *times, struct mp_error *error) {
    bool ended = false;
    int64_t number = 0;
    int code = MP_OK;
    while (!code && times->count < job->file.job.iterations) {
        if (signals && *signals)
            return mp_fail(error, MP_EINTERRUPTED, "interrupted: the bound is not known");
        code = read_iteration(reader, &number, &ended, error);
        if (code || ended)
            break;
        code = bound_iteration(bound, reader->load, times, error);
    }
    return code || times->count ? code : fail_empty(reader, error);
}

int mp_predict_job_bound(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         const volatile sig_atomic_t *signals, struct mp_known_bounds *known,
                         struct mp_predict_bound *out, struct mp_error *error) {
    struct reader reader;
    struct times times = {0};
    struct mp_bound *bound = NULL;
    *out = (struct mp_predict_bound){0};
    int code = open_reader(job, cluster, &reader, error);
    if (code)
        return code;
    code = mp_known_bounds_take(known, job, cluster, &bound, error);
    if (!code)
        code = bound_iterations(job, &reader, bound, signals, &times, error);
    if (!code)
        finish_bound(&times, out);
    close_reader(&reader);
    free(times.seconds);
    return code;
}

/* ---- several systems ---- */

/* Every iteration under every job that has not failed, and its bound. */
static int run_together(struct running running[], int count, int64_t iterations,
                        struct reader *reader, struct mp_bound *bound, struct times *times,
                        struct mp_error *error) {
    bool ended = false;
    int64_t number = 0, read = 0;
    int code = MP_OK;
    for (; !code && read < iterations; read++) {
        struct mp_prediction prediction;
        code = read_iteration(reader, &number, &ended, error);
        if (code || ended)
            break;
        for (int i = 0; i < count; i++)
            if (!running[i].error->code)
                step(&running[i], reader->load, number, &prediction);
        if (bound)
            code = bound_iteration(bound, reader->load, times, error);
    }
    return code || read ? code : fail_empty(reader, error);
}

int mp_predict_jobs_run(const struct mp_predict_job *const job[], int count,
                        const struct mp_cluster *cluster, struct mp_prediction_summary *summary[],
                        struct mp_error *failure[], struct mp_known_bounds *known,
                        struct mp_predict_bound *out, struct mp_error *error) {
    struct reader reader;
    struct times times = {0};
    struct mp_bound *bound = NULL;
    struct running *running = calloc((size_t)count, sizeof *running);
    int code = running ? open_reader(job[0], cluster, &reader, error)
                       : mp_fail(error, MP_ENOMEM, "no memory for %d predictions", count);
    if (code) {
        free(running);
        return code;
    }
    for (int i = 0; i < count; i++)
        begin(&running[i], job[i], cluster, NULL, summary[i], failure[i]);
    if (out)
        code = mp_known_bounds_take(known, job[0], cluster, &bound, error);
    if (!code)
        code = run_together(running, count, job[0]->file.job.iterations, &reader, bound, &times,
                            error);
    for (int i = 0; i < count; i++)
        end(&running[i], !code && !failure[i]->code);
    if (!code && out)
        finish_bound(&times, out);
    close_reader(&reader);
    free(times.seconds);
    free(running);
    return code;
}
