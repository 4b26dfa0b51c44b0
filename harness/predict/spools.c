#include "harness/predict/spools.h"

#include <math.h>
#include <stdlib.h>

#include "reference/trainer/numbers.h"
#include "reference/trainer/version.h"

static const int64_t SPANS_LIMIT = 20000000;
enum { BUFFER_SPANS = 2048, STREAMS = MP_STREAM_COMM + 1, TEXT_SIZE = 8192 };

/* The recorder takes an end of 0 as "now"; only differences of times count. */
static const int64_t ORIGIN_NS = 1;

struct recorded_rank {
    struct mp_recorder *recorder;
    struct mp_record_thread *stream[STREAMS];
};

struct mp_predict_spools {
    struct mp_predict_sink sink;
    int ranks;
    int64_t spans;
    struct recorded_rank rank[]; /* [ranks] */
};

static void take_span(void *context, int rank, enum mp_predict_stream stream,
                      const struct mp_span *span) {
    struct mp_predict_spools *recording = context;
    struct mp_span moved = *span;
    moved.start_ns += ORIGIN_NS;
    moved.end_ns += ORIGIN_NS;
    recording->spans++;
    mp_record_span(recording->rank[rank].stream[stream], &moved);
}

static void take_load(void *context, int rank, int64_t iteration, int layer, int experts,
                      const uint32_t routes[], const uint32_t dropped[]) {
    const struct mp_predict_spools *recording = context;
    mp_record_load(recording->rank[rank].stream[MP_STREAM_COMPUTE], iteration, layer, experts,
                   routes, dropped);
}

static void take_facts(void *context, int64_t iteration, int layer, const struct mp_plan *plan,
                       const struct mp_plan_facts *facts) {
    const struct mp_predict_spools *recording = context;
    (void)plan;
    mp_record_named(recording->rank[0].stream[MP_STREAM_COMPUTE], iteration, layer,
                    mp_plan_fact_names, facts);
}

static void take_found(void *context, int64_t iteration, const struct mp_named_number facts[],
                       const void *values) {
    struct mp_predict_spools *recording = context;
    mp_record_named(recording->rank[0].stream[MP_STREAM_COMPUTE], iteration, -1, facts, values);
}

/* ---- texts that say what the run rests on ---- */

struct assumptions {
    struct mp_record_thread *thread;
    int count;
};

static void record_assumption(void *context, const char *text) {
    struct assumptions *assumptions = context;
    char name[48];
    snprintf(name, sizeof name, "assumption.%03d", ++assumptions->count);
    mp_record_text(assumptions->thread, name, text);
}

static int record_setting(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                          struct mp_record_thread *thread, struct mp_error *error) {
    const struct mp_job *sizes = &job->file.job;
    struct mp_costs *costs;
    MP_TRY(mp_costs_create(cluster, sizes, &job->options, &costs, error));
    mp_record_named(thread, -1, -1, mp_setting_figures, &costs->setting);
    mp_costs_destroy(costs);
    if (mp_job_shards(sizes) > 1)
        mp_record_number(thread, -1, -1, "expert-shards", mp_job_shards(sizes));
    mp_record_number(thread, -1, -1, "tokens-per-iteration", (double)mp_job_tokens(sizes));
    return MP_OK;
}

static int record_run(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                      struct mp_record_thread *thread, struct mp_error *error) {
    char text[TEXT_SIZE];
    struct assumptions assumptions = {.thread = thread};
    if (mp_job_serves(&job->file.job))
        mp_record_text(thread, "mode", mp_job_mode(&job->file.job));
    mp_record_text(thread, "environment.revision", mp_revision());
    mp_record_text(thread, "cluster", job->cluster);
    mp_record_text(thread, "cluster.device", cluster->device ? cluster->device : "");
    mp_record_text(thread, "loads", mp_predict_job_workload(job, text, sizeof text));
    struct mp_predict_job cut = *job; /* as it is predicted: its experts as its system wants them */
    char *job_text;
    MP_TRY(
        mp_predict_shards(&job->file, cluster, &job->options, &cut.file.job.expert_shards, error));
    MP_TRY(mp_predict_job_text(&cut, true, &job_text, error));
    mp_record_text(thread, "job", job_text);
    free(job_text);
    MP_TRY(record_setting(&cut, cluster, thread, error));
    return mp_predict_job_assumptions(job, cluster, record_assumption, &assumptions, error);
}

/* ---- beginning and end ---- */

static int open_rank(const char *folder, const struct mp_cluster *cluster, int rank,
                     struct recorded_rank *own, struct mp_error *error) {
    static const char *const names[STREAMS] = {
        [MP_STREAM_COMPUTE] = "compute", [MP_STREAM_COMM] = "comm"};
    char path[TEXT_SIZE];
    struct mp_topology topology = mp_cluster_topology(cluster);
    const struct mp_recorder_config config = {.path = path,
                                              .rank = rank,
                                              .ranks = topology.ranks,
                                              .node = rank / topology.ranks_per_node,
                                              .buffer_spans = BUFFER_SPANS};
    if (snprintf(path, sizeof path, "%s/rank-%04d.spool", folder, rank) >= (int)sizeof path)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", folder);
    MP_TRY(mp_recorder_create(&config, &own->recorder, error));
    for (int s = 0; s < STREAMS; s++)
        MP_TRY(mp_recorder_thread(own->recorder, names[s], &own->stream[s], error));
    return MP_OK;
}

int mp_predict_spools_create(const char *folder, const struct mp_predict_job *job,
                             const struct mp_cluster *cluster, struct mp_predict_spools **recording,
                             struct mp_error *error) {
    int ranks = mp_cluster_ranks(cluster), code = MP_OK;
    if (ranks > MP_PREDICT_SPOOL_RANKS)
        return mp_fail(error, MP_ELIMIT,
                       "a database takes the spans of at most %d ranks, and the cluster has %d: "
                       "predict without one",
                       MP_PREDICT_SPOOL_RANKS, ranks);
    struct mp_predict_spools *made =
        calloc(1, sizeof *made + (size_t)ranks * sizeof(struct recorded_rank));
    if (!made)
        return mp_fail(error, MP_ENOMEM, "no memory to record %d ranks", ranks);
    made->ranks = ranks;
    made->sink = (struct mp_predict_sink){made, take_span, take_load, take_facts, take_found};
    for (int r = 0; r < ranks && !code; r++)
        code = open_rank(folder, cluster, r, &made->rank[r], error);
    if (!code)
        code = record_run(job, cluster, made->rank[0].stream[MP_STREAM_COMPUTE], error);
    if (code)
        mp_predict_spools_finish(&made, code, error ? error->text : "", NULL, NULL);
    else
        *recording = made;
    return code;
}

const struct mp_predict_sink *mp_predict_spools_sink(struct mp_predict_spools *recording) {
    return &recording->sink;
}

/* ---- an iteration ---- */

#define OF_PREDICTION(member) offsetof(struct mp_prediction, member)
static const struct mp_named_number prediction_names[] = {
    {"predicted-seconds", OF_PREDICTION(seconds), MP_NUMBER_DOUBLE},
    {"exposed-seconds", OF_PREDICTION(exposed_seconds), MP_NUMBER_DOUBLE},
    {"late-seconds", OF_PREDICTION(late_seconds), MP_NUMBER_DOUBLE},
    {"exchange-seconds", OF_PREDICTION(exchange_seconds), MP_NUMBER_DOUBLE},
    {"transfer-exposed-seconds", OF_PREDICTION(transfer_exposed_seconds), MP_NUMBER_DOUBLE},
    {"exchanged-bytes", OF_PREDICTION(exchanged_bytes), MP_NUMBER_DOUBLE},
    {"bytes-after-step", OF_PREDICTION(bytes[MP_STAGE_AFTER_STEP]), MP_NUMBER_DOUBLE},
    {0},
};

int mp_predict_spools_step(struct mp_predict_spools *recording,
                           const struct mp_prediction *prediction, struct mp_error *error) {
    mp_record_named(recording->rank[0].stream[MP_STREAM_COMPUTE], prediction->iteration, -1,
                    prediction_names, prediction);
    if (!isnan(prediction->bound_seconds))
        mp_record_number(recording->rank[0].stream[MP_STREAM_COMPUTE], prediction->iteration, -1,
                         "bound-seconds", prediction->bound_seconds);
    for (int r = 0; r < recording->ranks; r++)
        MP_TRY(mp_recorder_flush(recording->rank[r].recorder, error));
    if (recording->spans > SPANS_LIMIT)
        return mp_fail(error, MP_ELIMIT,
                       "iteration %lld: more than %lld spans for the database: predict fewer "
                       "iterations, or without one",
                       (long long)prediction->iteration, (long long)SPANS_LIMIT);
    return MP_OK;
}

#define OF_MEMORY(member) offsetof(struct mp_memory, member)
static const struct mp_named_number memory_names[] = {
    {"memory-bytes", OF_MEMORY(total), MP_NUMBER_DOUBLE},
    {"memory-limit-bytes", OF_MEMORY(limit), MP_NUMBER_DOUBLE},
    {"memory-dense-bytes", OF_MEMORY(dense), MP_NUMBER_DOUBLE},
    {"memory-expert-bytes", OF_MEMORY(parameters), MP_NUMBER_DOUBLE},
    {"memory-copy-bytes", OF_MEMORY(copies), MP_NUMBER_DOUBLE},
    {"memory-gradient-bytes", OF_MEMORY(gradients), MP_NUMBER_DOUBLE},
    {"memory-optimizer-bytes", OF_MEMORY(optimizer), MP_NUMBER_DOUBLE},
    {"memory-activation-bytes", OF_MEMORY(activations), MP_NUMBER_DOUBLE},
    {"memory-cache-bytes", OF_MEMORY(cache), MP_NUMBER_DOUBLE},
    {"memory-buffer-bytes", OF_MEMORY(buffers), MP_NUMBER_DOUBLE},
    {0},
};

static void write_memory(struct mp_record_thread *thread,
                         const struct mp_prediction_summary *summary) {
    mp_record_number(thread, -1, -1, "memory-rank", summary->memory_rank);
    mp_record_named(thread, -1, -1, memory_names, &summary->memory);
    mp_record_number(thread, -1, -1, "out-of-memory", summary->out_of_memory);
}

int mp_predict_spools_finish(struct mp_predict_spools **recording, int status, const char *reason,
                             const struct mp_prediction_summary *summary, struct mp_error *error) {
    struct mp_predict_spools *ended = *recording;
    int code = MP_OK;
    *recording = NULL;
    if (!ended)
        return MP_OK;
    if (summary)
        write_memory(ended->rank[0].stream[MP_STREAM_COMPUTE], summary);
    for (int r = 0; r < ended->ranks; r++) {
        int finished = mp_recorder_finish(&ended->rank[r].recorder, status, reason, error);
        code = code ? code : finished;
    }
    free(ended);
    return code;
}
