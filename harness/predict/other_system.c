#include "harness/predict/other_system.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/bound.h"
#include "harness/predict/engine.h"
#include "harness/predict/job.h"
#include "harness/workload/run_trace.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"

struct mp_other_system {
    struct mp_what_if *what_if;
    const struct mp_recorded *run;
    struct mp_store *store;
    const struct mp_systems *systems;
    struct mp_predict_job job;
    struct mp_setting setting;
    bool knows_bandwidth,
        knows_rate; /* the setting's, and experts', are the run's own or its job's */
    struct mp_fitted *fitted;
    struct mp_load *load;      /* [micro-batches][layers] of the iteration at hand */
    double *seconds;           /* [iterations] */
    double measured, replayed; /* medians, s: of the run; of its own system as it is carried out */
    double bound;              /* mean, s, as the model says it; NAN: not worked out */
    struct mp_arena arena;     /* of the tables */
};

/* ---- the run ---- */

/* A number that the run recorded of itself; 0 if it did not. */
static double number_of(const struct mp_other_system *other, const char *name) {
    sqlite3_stmt *row = NULL;
    double value = 0;
    if (sqlite3_prepare_v2(mp_store_connection(other->store),
                           "SELECT value FROM v_number WHERE run_id = ?1 AND name = ?2 AND "
                           "iteration = -1",
                           -1, &row, NULL) == SQLITE_OK &&
        sqlite3_bind_int64(row, 1, other->run->run_id) == SQLITE_OK &&
        sqlite3_bind_text(row, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(row) == SQLITE_ROW)
        value = sqlite3_column_double(row, 0);
    sqlite3_finalize(row);
    return value;
}

static int read_job(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->run;
    struct mp_yaml *document;
    char name[64];
    snprintf(name, sizeof name, "job of run %lld", (long long)run->run_id);
    if (!*run->job_text)
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no job file, so no sizes to plan by: moeperf record and "
                       "import take one, --job FILE (moeperf show job)",
                       (long long)run->run_id, mp_store_path(other->store));
    MP_TRY(mp_predict_job_create(&other->job, error));
    MP_TRY(mp_yaml_parse(name, run->job_text, strlen(run->job_text), &document, error));
    int code = mp_predict_job_apply(&other->job, document, name, other->systems, error);
    mp_yaml_destroy(document);
    MP_TRY(code);
    if (!other->job.file.system)
        return mp_fail(error, MP_ENOTFOUND, "%s names no system", name);
    if (number_of(other, "expert-shards") > 1) /* its system may have wanted them */
        other->job.file.job.expert_shards = (int)number_of(other, "expert-shards");
    other->job.file.job.inject[0] = '\0';   /* what was put in is part of the recording */
    other->job.file.job.ranks = run->ranks; /* those of a prediction are its cluster's */
    other->job.file.job.ranks_per_node = run->ranks_per_node;
    return MP_OK;
}

static int open_loads(const struct mp_other_system *other, struct mp_trace_stream **stream,
                      struct mp_error *error) {
    MP_TRY(mp_trace_open_run(other->store, other->run->run_id, stream, error));
    mp_trace_allow_ragged(*stream); /* whatever was recorded */
    return MP_OK;
}

/* Loads and spans are those of the job. */
static int check_shape(const struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->run;
    int layers = mp_what_if_layers(other->what_if);
    struct mp_trace_stream *stream;
    int code = MP_OK;
    MP_TRY(open_loads(other, &stream, error));
    const struct mp_trace_shape *shape = &mp_trace_stream_info(stream)->shape;
    if (layers != shape->layers)
        code =
            mp_fail(error, MP_ENOTFOUND, "run %lld of %s has experts in %d layers and loads in %d",
                    (long long)run->run_id, mp_store_path(other->store), layers, shape->layers);
    else if (shape->layers != other->setting.layers ||
             shape->experts != other->job.file.job.experts)
        code = mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has loads of %d layers and %d experts, its job has %d and "
                       "%d",
                       (long long)run->run_id, mp_store_path(other->store), shape->layers,
                       shape->experts, other->setting.layers, other->job.file.job.experts);
    mp_trace_stream_destroy(stream);
    return code;
}

static bool is_predicted(const struct mp_other_system *other) {
    return !strcmp(other->run->executor, "predicted");
}

/* What the trainer keeps numbers in, as a prediction's options say it. */
static void describe_training(const struct mp_job *job, struct mp_predict_options *options) {
    const struct mp_element_sizes elements = mp_training_elements(mp_job_element_bytes(job));
    options->precision = job->precision == MP_PRECISION_BF16 ? MP_BF16 : MP_FP32;
    options->expert_matrices = elements.expert_matrices;
    options->gradient_bytes = elements.gradient;
    options->optimizer_bytes = elements.optimizer;
}

/* Sizes of who carried the run out, and the figures that it recorded. */
static void describe_setting(struct mp_other_system *other) {
    const struct mp_job *job = &other->job.file.job;
    const struct mp_topology topology = mp_job_topology(job, other->run->ranks);
    struct mp_sizes sizes;
    if (!is_predicted(other))
        describe_training(job, &other->job.options);
    const struct mp_element_sizes elements = mp_predict_elements(&other->job.options);
    mp_job_sizes(job, &elements, &sizes);
    mp_job_setting(job, &sizes, &topology, other->job.options.micro_batches, &other->setting);
    for (const struct mp_named_number *figure = mp_setting_figures; figure->name; figure++)
        *mp_setting_figure(&other->setting, figure) = number_of(other, figure->name);
    mp_job_given_figures(job, &sizes, &other->setting);
    other->knows_bandwidth = other->setting.bandwidth > 0;
    other->knows_rate = other->setting.seconds_per_route > 0;
    mp_job_usual_figures(&other->setting);
}

/* ---- a system at work on the run's loads ---- */

/* What a rank has to do that is not fitted to, mean, as the costs at hand say it. */
struct asked {
    double travel; /* s: experts and their gradients */
    double sums;   /* s: other gradients; and of it not hidden */
    double bare_sums;
    double update; /* s */
};

struct carrying {
    struct mp_other_system *other;
    struct mp_costs *costs;
    struct mp_predictor *predictor;
    struct mp_bound *bound; /* in the place of a predictor */
    int at;                 /* index of the iteration at hand, or of the next that counts */
    bool counts;            /* it is at hand */
    int met;                /* iterations that count */
    bool as_chosen;         /* every route went to the expert that the loads say */
    struct asked asked;     /* means of them */
    int code;               /* of what is noted */
    struct mp_error *error;
};

static void take_span(void *context, int rank, enum mp_predict_stream stream,
                      const struct mp_span *span) {
    const struct carrying *carrying = context;
    if (carrying->counts && stream == MP_STREAM_COMPUTE)
        mp_fitted_take(carrying->other->fitted, carrying->at, rank, span);
}

/* The block's share in each micro-batch. */
static void take_block(const struct mp_other_system *other, const struct mp_trace_block *block) {
    uint64_t parts = (uint64_t)other->job.options.micro_batches;
    int64_t pairs = (int64_t)block->load.ranks * block->load.experts;
    for (uint64_t m = 0; m < parts; m++) {
        uint32_t *count = other->load[(int)m * other->setting.layers + block->layer].count;
        for (int64_t i = 0; i < pairs; i++) {
            uint64_t all = block->load.count[i];
            count[i] = (uint32_t)(all * (m + 1) / parts - all * m / parts);
        }
    }
}

static int predict(struct carrying *carrying, int64_t iteration, double *seconds) {
    struct mp_predictor *predictor = carrying->predictor;
    struct mp_prediction prediction;
    double part = 1. / carrying->other->run->iterations;
    if (!is_predicted(
            carrying->other)) /* a training begins where it does; predictors count from 0 */
        predictor->iteration = iteration;
    MP_TRY(mp_predictor_step(predictor, carrying->other->load, &prediction, carrying->error));
    if (!carrying->counts)
        return MP_OK;
    *seconds = prediction.seconds;
    carrying->as_chosen &= prediction.dropped == 0;
    carrying->asked.travel += part * (prediction.transfer_seconds + prediction.move_seconds);
    carrying->asked.bare_sums += part * prediction.all_reduce_exposed_seconds;
    return MP_OK;
}

static int step(struct carrying *carrying, int64_t iteration) {
    const struct mp_recorded *run = carrying->other->run;
    int code = MP_OK;
    while (carrying->at + 1 < run->iterations && run->number[carrying->at] < iteration)
        carrying->at++;
    carrying->counts = run->number[carrying->at] == iteration;
    carrying->costs->iteration = carrying->at;
    double *seconds = &carrying->other->seconds[carrying->at];
    if (carrying->predictor)
        code = predict(carrying, iteration, seconds);
    else if (carrying->counts)
        code = mp_bound_seconds(carrying->bound, carrying->other->load, seconds, carrying->error);
    carrying->met += carrying->counts;
    return code;
}

static void ask_the_rest(struct carrying *carrying) {
    const struct mp_predictor *predictor = carrying->predictor;
    carrying->asked.sums =
        predictor->layers * predictor->meetings.block_sums + predictor->meetings.table_sums;
    for (int r = 0; r < predictor->ranks; r++) {
        double update = predictor->holding.optimizer_seconds[r];
        for (int l = 0; predictor->planner.policy.updates_early && l < predictor->layers; l++)
            update += mp_holding_layer_update(&predictor->holding, l, r);
        carrying->asked.update += update / predictor->ranks;
    }
}

static int carry_blocks(struct carrying *carrying, struct mp_trace_stream *stream) {
    const struct mp_other_system *other = carrying->other;
    const struct mp_recorded *run = other->run;
    const struct mp_trace_block *block;
    int code;
    while (!(code = mp_trace_next(stream, &block, carrying->error)) && block) {
        take_block(other, block);
        if (block->layer == other->setting.layers - 1)
            MP_TRY(step(carrying, block->iteration));
    }
    if (!code && carrying->met != run->iterations)
        code = mp_fail(carrying->error, MP_ENOTFOUND,
                       "run %lld of %s lacks the loads of %d iterations", (long long)run->run_id,
                       mp_store_path(other->store), run->iterations - carrying->met);
    return code;
}

/* Who carries out: the predictor, or without a job file the bound. */
static int create_carrying(struct carrying *carrying, const struct mp_job_file *file,
                           bool as_it_was, const struct mp_cluster *cluster) {
    const struct mp_other_system *other = carrying->other;
    const struct mp_predict_sink sink = {.context = carrying, .span = take_span};
    const struct mp_job *job = &other->job.file.job;
    MP_TRY(mp_costs_create_fitted(other->fitted, cluster, job, &other->job.options, &other->setting,
                                  &carrying->costs, carrying->error));
    const struct mp_predictor_config config = {.cluster = cluster,
                                               .job = file,
                                               .options = &other->job.options,
                                               .costs = carrying->costs,
                                               .is_gated = as_it_was,
                                               .sink = other->fitted->probe < 0 ? NULL : &sink};
    return file ? mp_predictor_create(&config, &carrying->predictor, carrying->error)
                : mp_bound_create(carrying->costs, cluster, job, &other->job.options, 0,
                                  &carrying->bound, carrying->error);
}

/* The seconds of all iterations with a job's system; without a file, of the bound. */
static int carry_out(struct mp_other_system *other, const struct mp_job_file *file, bool as_it_was,
                     struct carrying *carrying, struct mp_error *error) {
    struct mp_cluster cluster;
    struct mp_trace_stream *stream = NULL;
    *carrying = (struct carrying){.other = other, .error = error};
    mp_fitted_cluster(other->fitted, &cluster);
    int code = create_carrying(carrying, file, as_it_was, &cluster);
    if (!code && file)
        carrying->as_chosen = !mp_predictor_changes_loads(carrying->predictor);
    if (!code)
        code = open_loads(other, &stream, error);
    if (!code)
        code = carry_blocks(carrying, stream);
    if (!code && file)
        ask_the_rest(carrying);
    mp_trace_stream_destroy(stream);
    mp_predictor_destroy(carrying->predictor);
    mp_bound_destroy(carrying->bound);
    mp_costs_destroy(carrying->costs);
    return code;
}

static double mean_of(const struct mp_other_system *other) {
    double sum = 0;
    for (int i = 0; i < other->run->iterations; i++)
        sum += other->seconds[i];
    return sum / other->run->iterations;
}

/* Sorts them. */
static double median_of(const struct mp_other_system *other) {
    return mp_median_of(other->seconds, other->run->iterations);
}

/* ---- life ---- */

static int allocate(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->run;
    other->load =
        mp_loads_take(&other->arena, other->setting.layers * other->job.options.micro_batches,
                      run->ranks, other->job.file.job.experts);
    MP_TAKE(&other->arena, other->seconds, run->iterations);
    return mp_arena_check(&other->arena, error);
}

/* Programs of others record no figures for planners, and those are what the costs say then; copies
 * are as fast as rows. */
static void learn_figures(struct mp_other_system *other) {
    enum { FEW = 100, MANY = 1000 };
    struct mp_setting *setting = &other->setting;
    struct mp_fitted *fitted = other->fitted;
    const struct mp_fitted_experts *experts = &fitted->experts[0];
    if (!other->knows_bandwidth && fitted->rows_counted) {
        const double bytes = (double)setting->route_bytes;
        setting->bandwidth = bytes / mp_fitted_farthest(fitted)->row;
        setting->bandwidth_in_node = bytes / fitted->link[MP_LINK_NODE].row;
        fitted->copies = 1;
    }
    if (other->knows_rate)
        return;
    const double few = mp_fitted_expert(experts, FEW), many = mp_fitted_expert(experts, MANY);
    setting->seconds_per_route = (many - few) / (MANY - FEW);
    setting->seconds_per_expert = fmax(0, few - FEW * setting->seconds_per_route);
}

/* What is asked for takes as long as it took. */
static void take_rates(struct mp_fitted *fitted, const struct asked *asked) {
    if (asked->update > 0)
        fitted->update *= fitted->updating / asked->update;
    fitted->copies_counted = asked->travel > 0 && fitted->stalled > 0;
    double bare = fitted->hides ? asked->bare_sums : asked->sums;
    double sums = asked->sums - bare + fitted->summing;
    if (asked->sums > 0)
        fitted->sums *= sums / asked->sums;
    if (fitted->copies_counted && !fitted->hides)
        fitted->copies *= asked->travel / fitted->stalled;
}

/* What can be told apart is fitted to probes of the run's own plans; the rest is what these lack
 * then. */
static int find_costs(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_job_file *file = &other->job.file;
    struct carrying carrying;
    for (int probe = 0; probe < MP_FITTED_PROBES; probe++) {
        mp_fitted_probe(other->fitted, probe);
        MP_TRY(carry_out(other, file, true, &carrying, error));
    }
    MP_TRY(mp_fitted_fit(other->fitted, error));
    learn_figures(other);
    MP_TRY(carry_out(other, file, true, &carrying, error));
    take_rates(other->fitted, &carrying.asked);
    MP_TRY(carry_out(other, file, true, &carrying, error));
    other->replayed = median_of(other);
    other->measured = mp_what_if_recorded(other->what_if);
    return MP_OK;
}

static int create(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_predict_job *job = &other->job;
    MP_TRY(read_job(other, error));
    if (mp_what_if_layers(other->what_if) == 0)
        return mp_fail(error, MP_ENOTFOUND, "run %lld of %s has no spans of experts",
                       (long long)other->run->run_id, mp_store_path(other->store));
    describe_setting(other);
    bool hides = is_predicted(other) || job->file.job.device == MP_DEVICE_CUDA;
    MP_TRY(check_shape(other, error));
    MP_TRY(allocate(other, error));
    MP_TRY(mp_fitted_create(other->what_if, other->run, &other->setting, job->options.micro_batches,
                            hides, &other->fitted, error));
    return find_costs(other, error);
}

int mp_other_system_create(struct mp_what_if *what_if, const struct mp_recorded *recorded,
                           struct mp_store *store, const struct mp_systems *systems,
                           struct mp_other_system **made, struct mp_error *error) {
    struct mp_other_system *other = calloc(1, sizeof *other);
    *made = NULL;
    if (!other)
        return mp_fail(error, MP_ENOMEM, "no memory to plan run %lld again",
                       (long long)recorded->run_id);
    *other = (struct mp_other_system){
        .what_if = what_if, .run = recorded, .store = store, .systems = systems, .bound = NAN};
    int code = create(other, error);
    if (code)
        mp_other_system_destroy(other);
    else
        *made = other;
    return code;
}

void mp_other_system_destroy(struct mp_other_system *other) {
    if (!other)
        return;
    mp_predict_job_destroy(&other->job);
    mp_fitted_destroy(other->fitted);
    mp_arena_release(&other->arena);
    free(other);
}

const struct mp_fitted *mp_other_system_fitted(const struct mp_other_system *other) {
    return other->fitted;
}

const struct mp_system *mp_other_system_own(const struct mp_other_system *other) {
    return other->job.file.system;
}

const struct mp_setting *mp_other_system_setting(const struct mp_other_system *other) {
    return &other->setting;
}

/* ---- another system ---- */

/* The run's job with a system's options: the own one's as they were, another's at its defaults. */
static int choose_system(const struct mp_other_system *other,
                         const struct mp_other_request *request, struct mp_job_file *file,
                         struct mp_error *error) {
    const struct mp_job_file *own = &other->job.file;
    char assignment[128], owner[64];
    *file = *own;
    file->system = NULL;
    file->system_options = NULL;
    snprintf(assignment, sizeof assignment, "system=%.100s", request->system);
    MP_TRY(mp_job_set(file, NULL, assignment, other->systems, error));
    if (file->system == own->system && own->system_options)
        memcpy(file->system_options, own->system_options, own->system->options_size);
    snprintf(owner, sizeof owner, "system %.50s", request->system);
    for (int i = 0; i < request->options; i++)
        MP_TRY(mp_options_set(file->system->options, file->system_options, owner,
                              request->option[i][0], request->option[i][1], NULL, error));
    return MP_OK;
}

/* What the model lacks of the run is added, what it has too much is taken off in proportion. */
static double answer_of(const struct mp_other_system *other, double predicted) {
    double lacks = other->measured - other->replayed;
    return lacks > 0 ? predicted + lacks : predicted * other->measured / other->replayed;
}

int mp_other_system_bound(struct mp_other_system *other, bool always, double *seconds,
                          struct mp_error *error) {
    const struct mp_job *job = &other->job.file.job;
    struct carrying carrying;
    struct mp_cluster cluster;
    *seconds = NAN;
    mp_fitted_cluster(other->fitted, &cluster);
    if (mp_job_shards(job) > 1 ||
        !(always || mp_bound_is_quick(&cluster, job, other->run->iterations)))
        return MP_OK;
    MP_TRY(carry_out(other, NULL, false, &carrying, error));
    other->bound = mean_of(other);
    *seconds = answer_of(other, median_of(other));
    return MP_OK;
}

int mp_other_system_ask(struct mp_other_system *other, const struct mp_other_request *request,
                        struct mp_other_answer *answer, struct mp_error *error) {
    MP_AUTO(job_file) struct mp_job_file file = {0};
    struct carrying carrying;
    bool as_it_was = !request->options && !strcmp(request->system, other->job.file.system->name);
    *answer = (struct mp_other_answer){.of_bound = NAN};
    MP_TRY(choose_system(other, request, &file, error));
    MP_TRY(mp_job_check_model(&file, error));
    MP_TRY(carry_out(other, &file, as_it_was, &carrying, error));
    mp_options_line(file.system->options, file.system_options, answer->options,
                    sizeof answer->options);
    if (mp_bound_covers(file.system, other->job.file.job.exchange, carrying.as_chosen,
                        mp_job_shards(&file.job)))
        answer->of_bound = answer_of(other, other->bound) / answer_of(other, mean_of(other));
    double predicted = median_of(other);
    answer->seconds = as_it_was ? predicted : answer_of(other, predicted);
    return MP_OK;
}
