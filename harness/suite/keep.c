/* Keeping ended jobs: see keep.h. */
#include "harness/suite/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/suite/note.h"
#include "harness/suite/spools.h"
#include "harness/suite/time_slices.h"

enum { MODEL_SIZE = 2048, LONG_VALUE = 80, WORKLOAD_SIZE = MP_TEXT_SIZE + 16 };

void mp_suite_format_utc(const char *format, char *text, size_t size) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, size, format, &utc);
}

/* Options beside the sizes that change what ranks compute, or how long that takes. */
static const char *const deciding[] = {
    "text",    "validation-share", "learning-rate", "auxiliary-weight", "beta1",       "beta2",
    "epsilon", "weight-decay",     "seed",          "restore",          "check-plans", "inject"};
/* The same of predicted jobs. */
static const char *const deciding_predictions[] = {"cluster", "change"};

/* Where a job's options of a table are. */
struct place {
    const struct mp_option *table;
    size_t offset; /* in struct mp_predict_job */
    bool is_of_predictions;
};
static const struct place job_place = {mp_job_options, offsetof(struct mp_predict_job, file.job),
                                       false};
static const struct place predicted_job_place = {mp_job_options,
                                                 offsetof(struct mp_predict_job, file.job), true};
static const struct place prediction_place = {mp_predict_job_options, 0, true};
static const struct place options_place = {mp_predict_options_table,
                                           offsetof(struct mp_predict_job, options), true};

static const char *format_value(const struct mp_suite *suite, int job, const struct place *place,
                                const struct mp_option *option, char value[MP_TEXT_SIZE]) {
    const char *options = (const char *)&suite->job[job] + place->offset;
    return mp_options_format(option, options, value, MP_TEXT_SIZE);
}

/* The first job of the suite with the same value as this one; `differs`: not all jobs have it. */
static int find_value(const struct mp_suite *suite, int job, const struct place *place,
                      const struct mp_option *option, char value[MP_TEXT_SIZE], bool *differs) {
    char other[MP_TEXT_SIZE];
    int first = job;
    *differs = false;
    format_value(suite, job, place, option, value);
    for (int i = suite->count - 1; i >= 0; i--) {
        if (place->is_of_predictions != mp_suite_is_predicted(suite, i))
            continue;
        format_value(suite, i, place, option, other);
        if (strcmp(value, other) != 0)
            *differs = true;
        else
            first = i;
    }
    return first;
}

/* A text that is being put together. */
struct words {
    char *text;
    size_t length, size;
};

static void add_value(const struct mp_suite *suite, int job, const struct place *place,
                      const struct mp_option *option, struct words *words) {
    char value[MP_TEXT_SIZE];
    bool differs;
    int first = find_value(suite, job, place, option, value, &differs);
    if (!differs || words->length >= words->size)
        return;
    if (strlen(value) > LONG_VALUE)
        snprintf(value, sizeof value, "of job %d", first + 1);
    words->length += (size_t)snprintf(words->text + words->length, words->size - words->length,
                                      ", %s %s", option->name, *value ? value : "none");
}

static void add_values(const struct mp_suite *suite, int job, const struct place *place,
                       const char *const names[], size_t count, struct words *words) {
    for (size_t i = 0; i < count; i++)
        add_value(suite, job, place, mp_options_find(place->table, names[i]), words);
}

/* Only jobs of a suite that differ in nothing named here are compared: always the sizes, and of the
 * deciding options those that its measured jobs do not share; of predicted jobs, to which these
 * mean nothing, their clusters, options and what is injected.  A long text is named by the job that
 * has it first. */
static void format_model(const struct mp_suite *suite, int index, char *text, size_t size) {
    const struct mp_job *job = &suite->job[index].file.job;
    struct words words = {text, 0, size};
    char model[MP_MODEL_WORDS];
    words.length =
        (size_t)snprintf(text, size, "%s, threads %d", mp_job_model(job, model), job->threads);
    if (!mp_suite_is_predicted(suite, index)) {
        add_values(suite, index, &job_place, deciding, sizeof deciding / sizeof *deciding, &words);
        return;
    }
    add_values(suite, index, &prediction_place, deciding_predictions,
               sizeof deciding_predictions / sizeof *deciding_predictions, &words);
    add_value(suite, index, &predicted_job_place, mp_options_find(mp_job_options, "inject"),
              &words);
    for (const struct mp_option *option = mp_predict_options_table; option->name; option++)
        add_value(suite, index, &options_place, option, &words);
}

/* What loads of the job are called: measured and predicted jobs of the same loads alike. */
static const char *format_workload(const struct mp_suite *suite, int index, char *text,
                                   size_t size) {
    const struct mp_predict_job *job = &suite->job[index];
    return mp_suite_is_predicted(suite, index) ? mp_predict_job_workload(job, text, size)
                                               : mp_job_workload(&job->file.job, text, size);
}

/* The texts that a description borrows. */
struct texts {
    char workload[WORKLOAD_SIZE], model[MODEL_SIZE], gate[MP_GATE_WORDS];
};

static struct mp_store_run describe(const struct mp_ended_job *ended, struct texts *texts) {
    const struct mp_suite *suite = ended->suite;
    const struct mp_job_file *file = &suite->job[ended->index].file;
    const struct mp_job *job = &file->job;
    struct mp_topology topology = mp_job_topology(job, job->ranks);
    format_model(suite, ended->index, texts->model, sizeof texts->model);
    return (struct mp_store_run){
        .suite = suite->name,
        .job = job->name,
        .suite_run = ended->suite_run,
        .system = job->system,
        .executor = mp_suite_is_predicted(suite, ended->index) ? "predicted" : "measured",
        .workload = format_workload(suite, ended->index, texts->workload, sizeof texts->workload),
        .gate = mp_job_gate(job, texts->gate),
        .model = texts->model,
        .started_at = ended->started_at,
        .suite_text = suite->text,
        .job_text = ended->job_text,
        .command = ended->command,
        .round = ended->round,
        .ranks = job->ranks,
        .nodes = mp_topology_nodes(&topology),
        .ranks_per_node = topology.ranks_per_node,
        .iterations_wanted = job->iterations,
        .unattainable = file->system->capabilities & MP_SYSTEM_UNATTAINABLE,
        .status = ended->result ? mp_launch_end_name(ended->result->end) : NULL,
        .reason = ended->result && *ended->result->reason ? ended->result->reason : NULL,
        .fact = ended->fact,
        .facts = ended->facts};
}

int mp_suite_note(const struct mp_ended_job *job, const char *path, struct mp_error *error) {
    struct texts texts;
    const struct mp_store_run run = describe(job, &texts);
    return mp_note_write(&run, path, error);
}

int mp_suite_keep(struct mp_store *store, const struct mp_ended_job *ended, int64_t *run_id,
                  struct mp_error *error) {
    struct texts texts;
    struct mp_store_run run = describe(ended, &texts);
    struct mp_spools spools = {NULL, 0};
    struct mp_store_slice *slice = NULL;
    int64_t kept, recordings = 0;
    int code = ended->spools ? mp_spools_list(ended->spools, &spools, error) : MP_OK;
    if (!code && ended->slices)
        code = mp_slices_read(ended->slices, &slice, &run.slices, error);
    /* A file that the disk had no room for means that nothing counts, not that everything does. */
    static const struct mp_store_slice nowhere;
    run.slice = ended->slices && !slice ? &nowhere : slice;
    if (!code)
        code = mp_store_ingest(store, &run, (const char *const *)spools.path, spools.count, &kept,
                               error);
    if (!code && run_id)
        *run_id = kept;
    if (!code)
        code = mp_store_recordings(store, kept, &recordings, error);
    if (!code && ended->spools && !ended->keep_spools && recordings == spools.count)
        mp_spools_remove(&spools, ended->spools);
    mp_spools_destroy(&spools);
    free(slice);
    return code;
}
