/* Another system on a recorded run: see other_system.h. */
#include "harness/predict/other_system.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/job.h"
#include "harness/predict/what_if_seconds.h"

struct mp_other_system {
    struct mp_what_if *what_if;
    struct mp_demand_run run;
    const struct mp_systems *systems;
    struct mp_predict_job job;
    struct mp_sizes sizes;
    struct mp_setting setting;
    struct mp_demands now, own; /* of the last plans, and of the run's own system */
    struct mp_what_if_measured measured;
    struct mp_what_if_layer *seconds; /* [iterations][layers][ranks] of the last plans */
    double *after_step;               /* [iterations] */
    struct mp_other_rates rates;
};

/* ---- the run ---- */

/* A number that the run recorded of itself; 0 if it did not. */
static double number_of(const struct mp_demand_run *run, const char *name) {
    sqlite3_stmt *row = NULL;
    double value = 0;
    if (sqlite3_prepare_v2(mp_store_connection(run->store),
                           "SELECT value FROM v_number WHERE run_id = ?1 AND name = ?2 AND "
                           "iteration = -1",
                           -1, &row, NULL) == SQLITE_OK &&
        sqlite3_bind_int64(row, 1, run->recorded->run_id) == SQLITE_OK &&
        sqlite3_bind_text(row, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(row) == SQLITE_ROW)
        value = sqlite3_column_double(row, 0);
    sqlite3_finalize(row);
    return value;
}

static int read_job(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->run.recorded;
    struct mp_yaml *document = NULL;
    char name[64];
    snprintf(name, sizeof name, "job of run %lld", (long long)run->run_id);
    if (!*run->job_text)
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no job file, so no sizes to plan by",
                       (long long)run->run_id, other->run.database);
    int code = mp_predict_job_create(&other->job, error);
    if (!code)
        code = mp_yaml_parse(name, run->job_text, strlen(run->job_text), &document, error);
    if (!code)
        code = mp_predict_job_apply(&other->job, document, name, other->systems, error);
    mp_yaml_destroy(document);
    if (!code && !other->job.file.system)
        code = mp_fail(error, MP_ENOTFOUND, "%s names no system", name);
    other->job.file.job.inject[0] = '\0';   /* what was put in is part of the recording */
    other->job.file.job.ranks = run->ranks; /* those of a prediction are its cluster's */
    other->job.file.job.ranks_per_node = run->ranks_per_node;
    return code;
}

/* Loads and spans are those of the job. */
static int check_shape(const struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->run.recorded;
    int layers = mp_what_if_layers(other->what_if);
    struct mp_trace_stream *stream;
    int code = mp_demand_loads(&other->run, &stream, error);
    if (code)
        return code;
    const struct mp_trace_shape *shape = &mp_trace_stream_info(stream)->shape;
    if (layers != shape->layers)
        code =
            mp_fail(error, MP_ENOTFOUND, "run %lld of %s has experts in %d layers and loads in %d",
                    (long long)run->run_id, other->run.database, layers, shape->layers);
    else if (shape->layers != other->setting.layers || shape->experts != other->setting.experts)
        code = mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has loads of %d layers and %d experts, its job has %d and "
                       "%d",
                       (long long)run->run_id, other->run.database, shape->layers, shape->experts,
                       other->setting.layers, other->setting.experts);
    mp_trace_stream_destroy(stream);
    return code;
}

/* Sizes of who carried the run out, and the figures that it recorded. */
static void describe_setting(struct mp_other_system *other) {
    const struct mp_job *job = &other->job.file.job;
    const struct mp_topology topology = mp_job_topology(job, other->run.recorded->ranks);
    bool predicted = !strcmp(other->run.recorded->executor, "predicted");
    const struct mp_element_sizes elements = predicted
                                                 ? mp_predict_elements(&other->job.options)
                                                 : mp_training_elements(mp_job_element_bytes(job));
    mp_job_sizes(job, &elements, &other->sizes);
    mp_job_setting(job, &other->sizes, &topology, 1, &other->setting);
    for (const struct mp_named_number *figure = mp_setting_figures; figure->name; figure++)
        *mp_setting_figure(&other->setting, figure) = number_of(&other->run, figure->name);
    mp_job_given_figures(job, &other->sizes, &other->setting);
    mp_job_usual_figures(&other->setting);
    other->rates.hides = predicted || job->device == MP_DEVICE_CUDA;
}

/* ---- life ---- */

static int allocate(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->run.recorded;
    int layers = other->setting.layers;
    int code = mp_demands_create(run->iterations, layers, run->ranks, &other->now, error);
    if (!code)
        code = mp_demands_create(run->iterations, layers, run->ranks, &other->own, error);
    if (code)
        return code;
    other->seconds = calloc(mp_demands_count(&other->now), sizeof *other->seconds);
    other->after_step = calloc((size_t)run->iterations, sizeof *other->after_step);
    return other->seconds && other->after_step
               ? MP_OK
               : mp_fail(error, MP_ENOMEM, "no memory to plan run %lld again",
                         (long long)run->run_id);
}

static int plan(struct mp_other_system *other, const struct mp_job_file *file,
                const struct mp_other_rates *rates, struct mp_demands *demands,
                struct mp_error *error) {
    const struct mp_planner_config config = {.system = file->system,
                                             .options = file->system_options,
                                             .setting = &other->setting,
                                             .gradient_bytes =
                                                 (int64_t)other->sizes.expert_gradient,
                                             .move = other->sizes.move};
    return mp_demands_plan(demands, &other->run, &config, rates, error);
}

/* From the run's own plans; once there are rates, its steps have seconds too. */
static int find_rates(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_job_file *file = &other->job.file;
    int code = plan(other, file, NULL, &other->own, error);
    if (!code)
        code = mp_what_if_measure(other->what_if, other->run.recorded, other->setting.layers,
                                  &other->measured, error);
    if (!code)
        code = mp_what_if_fit(&other->own, &other->measured, &other->setting, &other->rates, error);
    return code ? code : plan(other, file, &other->rates, &other->own, error);
}

int mp_other_system_create(struct mp_what_if *what_if, const struct mp_recorded *recorded,
                           struct mp_store *store, const char *database,
                           const struct mp_systems *systems, struct mp_other_system **made,
                           struct mp_error *error) {
    struct mp_other_system *other = calloc(1, sizeof *other);
    *made = NULL;
    if (!other)
        return mp_fail(error, MP_ENOMEM, "no memory to plan run %lld again",
                       (long long)recorded->run_id);
    *other = (struct mp_other_system){
        .what_if = what_if, .run = {recorded, store, database}, .systems = systems};
    int code = read_job(other, error);
    if (!code && mp_what_if_layers(what_if) == 0)
        code = mp_fail(error, MP_ENOTFOUND, "run %lld of %s has no spans of experts",
                       (long long)recorded->run_id, database);
    if (!code) {
        describe_setting(other);
        code = check_shape(other, error);
    }
    if (!code)
        code = allocate(other, error);
    if (!code)
        code = find_rates(other, error);
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
    mp_demands_destroy(&other->now);
    mp_demands_destroy(&other->own);
    mp_what_if_measured_destroy(&other->measured);
    free(other->seconds);
    free(other->after_step);
    free(other);
}

const struct mp_other_rates *mp_other_system_rates(const struct mp_other_system *other) {
    return &other->rates;
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
    int code = mp_job_set(file, assignment, other->systems, error);
    if (!code && file->system == own->system && own->system_options)
        memcpy(file->system_options, own->system_options, own->system->options_size);
    snprintf(owner, sizeof owner, "system %.50s", request->system);
    for (int i = 0; i < request->options && !code; i++)
        code = mp_options_set(file->system->options, file->system_options, owner,
                              request->option[i][0], request->option[i][1], NULL, error);
    return code;
}

static double replay(struct mp_other_system *other, bool rates_alone) {
    struct mp_what_if_change change = mp_what_if_nothing();
    mp_what_if_seconds(&other->now, &other->own, &other->measured, &other->rates, rates_alone,
                       other->seconds, other->after_step);
    change.other = other->seconds;
    change.after_step = other->after_step;
    return mp_what_if_median(other->what_if, &change);
}

int mp_other_system_ask(struct mp_other_system *other, const struct mp_other_request *request,
                        struct mp_other_answer *answer, struct mp_error *error) {
    struct mp_job_file file;
    bool as_it_was = !request->options && !strcmp(request->system, other->job.file.system->name);
    *answer = (struct mp_other_answer){0};
    int code = choose_system(other, request, &file, error);
    if (!code)
        code = mp_job_check_model(&file, error);
    if (!code)
        code = plan(other, &file, &other->rates, &other->now, error);
    if (!code) {
        mp_options_line(file.system->options, file.system_options, answer->options,
                        sizeof answer->options);
        answer->seconds = replay(other, as_it_was);
    }
    mp_job_file_destroy(&file);
    return code;
}
