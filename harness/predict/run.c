/* A predicted job from beginning to end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/bound.h"
#include "harness/predict/loads_wanted.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "reference/plan/routes.h"

#define FIGURE(member, kind)                                                                       \
    { #member, offsetof(struct mp_prediction, member), kind }
#define MEAN(member) FIGURE(member, MP_NUMBER_DOUBLE)
const struct mp_named_number mp_prediction_means[] = {
    MEAN(seconds),
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
    MEAN(port_seconds),
    MEAN(serial_seconds),
    MEAN(imbalance),
    {0},
};
const struct mp_named_number mp_prediction_sums[] = {
    FIGURE(exchanged_bytes, MP_NUMBER_DOUBLE),
    FIGURE(routes, MP_NUMBER_INT64),
    FIGURE(dropped, MP_NUMBER_INT64),
    FIGURE(copies, MP_NUMBER_INT64),
    {0},
};

/* Adds the row's figure of a prediction to that of others. */
static void add_figure(const struct mp_named_number *row, const struct mp_prediction *one,
                       struct mp_prediction *sum) {
    void *member = (char *)sum + row->offset;
    if (row->kind == MP_NUMBER_DOUBLE)
        *(double *)member += mp_named_value(row, one);
    else
        *(int64_t *)member += (int64_t)mp_named_value(row, one);
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
    int code = MP_OK;
    MP_TRY(mp_predict_job_loads(job, cluster, &reader->stream, error));
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
    MP_TRY(mp_load_copy_routes(&reader->load[number], load, error));
    return mp_load_count_first(&reader->load[number], error);
}

/* `number` becomes what the loads call the iteration. */
static int read_iteration(struct reader *reader, int64_t *number, bool *end,
                          struct mp_error *error) {
    const struct mp_trace_block *block;
    int layers = reader->wanted.shape.layers, read = reader->micro_batches * layers;
    for (int i = 0; i < read; i++) {
        MP_TRY(mp_trace_next(reader->stream, &block, error));
        *end = !block; /* between iterations only: streams have whole ones */
        if (*end)
            return MP_OK;
        if (block->layer == 0)
            MP_TRY(predict_loads_check(&reader->wanted, reader->fewer, block, error));
        *number = block->iteration;
        MP_TRY(take_block(reader, i, &block->load, error));
    }
    if (*number > INT32_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "loads: iteration %lld: what is recorded has numbers up to %d",
                       (long long)*number, INT32_MAX);
    for (int i = read; i < reader->blocks; i++)
        MP_TRY(take_block(reader, i, &reader->load[i - layers], error));
    return MP_OK;
}

/* ---- summary ---- */

struct times {
    double *seconds; /* owned */
    int64_t count;
};

static int add_time(struct times *times, double seconds, struct mp_error *error) {
    MP_TRY(MP_GROW(times->seconds, times->count, error));
    times->seconds[times->count++] = seconds;
    return MP_OK;
}

static void add_prediction(struct mp_prediction *sum, const struct mp_prediction *one) {
    for (const struct mp_named_number *row = mp_prediction_means; row->name; row++)
        add_figure(row, one, sum);
    for (const struct mp_named_number *row = mp_prediction_sums; row->name; row++)
        add_figure(row, one, sum);
    for (int stage = 0; stage < MP_STAGES; stage++)
        sum->bytes[stage] += one->bytes[stage];
}

static void finish_summary(const struct mp_predict_job *job, const struct mp_predictor *predictor,
                           struct times *times, struct mp_prediction_summary *summary) {
    summary->iterations = times->count;
    for (const struct mp_named_number *row = mp_prediction_means; row->name; row++)
        *(double *)((char *)&summary->mean + row->offset) /= (double)times->count;
    summary->seconds_mean = summary->mean.seconds;
    summary->seconds_median = mp_median_of(times->seconds, times->count); /* sorts them */
    summary->seconds_p99 = times->seconds[(99 * times->count + 99) / 100 - 1];
    double tokens = (double)mp_job_tokens(&job->file.job);
    summary->tokens_per_second = summary->seconds_median > 0 ? tokens / summary->seconds_median : 0;
    mp_predictor_memory(predictor, &summary->memory, &summary->memory_rank);
    summary->shards = mp_predictor_shards(predictor);
    summary->as_chosen = summary->mean.dropped == 0 && !mp_predictor_changes_loads(predictor);
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

static void begin(struct running *running, const struct mp_predict_job *job,
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
    mp_predictor_create(&config, &running->predictor, error);
}

static void step(struct running *running, const struct mp_load load[], int64_t number,
                 struct mp_prediction *prediction) {
    mp_predictor_call(running->predictor, number);
    int code = mp_predictor_step(running->predictor, load, prediction, running->error);
    if (!code)
        code = add_time(&running->times, prediction->seconds, running->error);
    if (!code)
        add_prediction(&running->summary->mean, prediction);
}

static void end(struct running *running, bool is_whole) {
    if (is_whole)
        finish_summary(running->job, running->predictor, &running->times, running->summary);
    mp_predictor_destroy(running->predictor);
    free(running->times.seconds);
}

/* Everybody who meets the same loads, which are read once. */
struct course {
    struct reader reader;
    int64_t iterations; /* at most */
    struct running *running;
    int count;                            /* of them; 0: the bound alone */
    struct mp_bound *bound;               /* NULL: not asked for */
    struct times bounds;                  /* seconds of each */
    const struct mp_predict_watch *watch; /* on one that runs alone, which ends it; NULL: none */
    const volatile sig_atomic_t *signals; /* NULL: none */
};

/* Every iteration under every job that has not failed, and its bound. */
static int run_course(struct course *course, struct mp_error *error) {
    struct reader *reader = &course->reader;
    const struct mp_predict_watch *watch = course->watch;
    struct mp_prediction prediction;
    bool ended = false, go_on = true;
    int64_t number = 0, read = 0;
    for (; go_on && read < course->iterations; read++) {
        double bound = NAN;
        if (course->signals && *course->signals)
            return mp_fail(error, MP_EINTERRUPTED, "interrupted: the bound is not known");
        MP_TRY(read_iteration(reader, &number, &ended, error));
        if (ended)
            break;
        if (course->bound) {
            MP_TRY(mp_bound_seconds(course->bound, reader->load, &bound, error));
            MP_TRY(add_time(&course->bounds, bound, error));
        }
        for (int i = 0; i < course->count; i++)
            if (!course->running[i].error->code)
                step(&course->running[i], reader->load, number, &prediction);
        prediction.bound_seconds = bound;
        if (watch)
            go_on = !course->running->error->code &&
                    (!watch->step || watch->step(watch->context, &prediction));
    }
    return read ? MP_OK
                : mp_fail(error, MP_EFORMAT, "there is no load in %s",
                          mp_trace_stream_info(reader->stream)->source);
}

/* `out`, where not NULL, gets the bound. */
static void close_course(struct course *course, struct mp_predict_bound *out) {
    struct times *times = &course->bounds;
    if (out) {
        out->iterations = times->count;
        for (int64_t i = 0; i < times->count; i++)
            out->seconds_mean += times->seconds[i] / (double)times->count;
        out->seconds_median = mp_median_of(times->seconds, times->count);
    }
    free(times->seconds);
    close_reader(&course->reader);
}

static bool wants_bounds(const struct running *running, const struct mp_cluster *cluster,
                         const struct mp_predict_watch *watch) {
    const struct mp_predict_job *job = running->job;
    const struct mp_job *sizes = &job->file.job;
    return watch->bounds && !running->error->code &&
           mp_bound_covers(job->file.system, sizes->exchange,
                           !mp_predictor_changes_loads(running->predictor),
                           mp_predictor_shards(running->predictor)) &&
           mp_bound_is_quick(cluster, sizes, sizes->iterations);
}

/* All of a course whose jobs' loads are those of the first one: `known` may have its bounds, and
 * `out`, where not NULL, gets them. */
static int carry_out(struct course *course, const struct mp_predict_job *const job[],
                     const struct mp_cluster *cluster, const struct mp_predict_sink *sink,
                     struct mp_prediction_summary *summary[], struct mp_error *failure[],
                     struct mp_known_bounds *known, struct mp_predict_bound *out,
                     struct mp_error *error) {
    struct running *running = course->running;
    course->iterations = job[0]->file.job.iterations;
    MP_TRY(open_reader(job[0], cluster, &course->reader, error));
    for (int i = 0; i < course->count; i++)
        begin(&running[i], job[i], cluster, sink, summary[i], failure[i]);
    int code = MP_OK;
    if (out || (course->watch && wants_bounds(running, cluster, course->watch)))
        code = mp_known_bounds_take(known, job[0], cluster, &course->bound, error);
    if (!code && !(course->watch && running->error->code))
        code = run_course(course, error);
    for (int i = 0; i < course->count; i++)
        end(&running[i], !code && !failure[i]->code);
    close_course(course, code ? NULL : out);
    return code;
}

int mp_predict_job_run(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                       const struct mp_predict_sink *sink, const struct mp_predict_watch *watch,
                       struct mp_prediction_summary *summary, struct mp_error *error) {
    static const struct mp_predict_watch nobody = {0};
    struct mp_error own = {0};
    struct running running;
    struct course course = {.running = &running, .count = 1, .watch = watch ? watch : &nobody};
    memset(summary, 0, sizeof *summary);
    int code = carry_out(&course, &job, cluster, sink, &summary, &(struct mp_error *){&own},
                         course.watch->bounds, NULL, error);
    return own.code ? mp_fail(error, own.code, "%s", own.text) : code;
}

int mp_predict_job_bound(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         const volatile sig_atomic_t *signals, struct mp_known_bounds *known,
                         struct mp_predict_bound *out, struct mp_error *error) {
    struct course course = {.signals = signals};
    *out = (struct mp_predict_bound){0};
    return carry_out(&course, &job, cluster, NULL, NULL, NULL, known, out, error);
}

int mp_predict_jobs_run(const struct mp_predict_job *const job[], int count,
                        const struct mp_cluster *cluster, struct mp_prediction_summary *summary[],
                        struct mp_error *failure[], struct mp_known_bounds *known,
                        struct mp_predict_bound *out, struct mp_error *error) {
    struct course course = {.running = calloc((size_t)count, sizeof *course.running),
                            .count = count};
    int code = course.running
                   ? carry_out(&course, job, cluster, NULL, summary, failure, known, out, error)
                   : mp_fail(error, MP_ENOMEM, "no memory for %d predictions", count);
    free(course.running);
    return code;
}
