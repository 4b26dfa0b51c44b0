/* Keeping ended jobs: see keep.h. */
#include "harness/suite/keep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/suite/note.h"
#include "harness/suite/slices.h"
#include "harness/suite/spools.h"
#include "reference/base/digest.h"

enum { MODEL_SIZE = 2048, LONG_VALUE = 80, WORKLOAD_SIZE = MP_TEXT_SIZE + 16 };

void mp_suite_format_utc(const char *format, char *text, size_t size) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, size, format, &utc);
}

/* The texts that a description borrows. */
struct texts {
    char workload[WORKLOAD_SIZE], model[MODEL_SIZE], gate[MP_GATE_WORDS], setting[20];
};

/* Where a job's options of a table are; of measured jobs those of predictions mean nothing. */
static const struct place {
    const struct mp_option *table;
    size_t offset; /* in struct mp_predict_job */
} places[] = {{mp_job_options, offsetof(struct mp_predict_job, file.job)},
              {mp_predict_job_options, 0},
              {mp_predict_options_table, offsetof(struct mp_predict_job, options)}};

static int count_places(const struct mp_suite *suite, int job) {
    return mp_suite_is_predicted(suite, job) ? 3 : 1;
}

static const char *format_value(const struct mp_suite *suite, int job, const struct place *place,
                                const struct mp_option *option, char value[MP_TEXT_SIZE]) {
    const char *options = (const char *)&suite->job[job] + place->offset;
    return mp_options_format(option, options, value, MP_TEXT_SIZE);
}

/* The first job of the suite with the same value as this one; `differs`: not all jobs of its kind
 * have it. */
static int find_value(const struct mp_suite *suite, int job, const struct place *place,
                      const struct mp_option *option, char value[MP_TEXT_SIZE], bool *differs) {
    char other[MP_TEXT_SIZE];
    int first = job;
    *differs = false;
    format_value(suite, job, place, option, value);
    for (int i = suite->count - 1; i >= 0; i--) {
        if (mp_suite_is_predicted(suite, job) != mp_suite_is_predicted(suite, i))
            continue;
        format_value(suite, i, place, option, other);
        if (strcmp(value, other) != 0)
            *differs = true;
        else
            first = i;
    }
    return first;
}

/* Only jobs of a suite with one setting are compared: the sizes, the gate, the ranks, and every
 * option that decides.  The key has all of that; the model, for people, the sizes and what the
 * suite's jobs do not share.  A long text is named by the job that has it first. */
static void describe_setting(const struct mp_suite *suite, int index, struct texts *texts) {
    const struct mp_job *job = &suite->job[index].file.job;
    struct mp_topology topology = mp_job_topology(job, job->ranks);
    char value[MP_TEXT_SIZE + 64];
    uint64_t key = MP_DIGEST;
    bool differs;
    size_t length = (size_t)snprintf(texts->model, MODEL_SIZE, "%s, threads %d",
                                     mp_job_model(job, value), job->threads);
    snprintf(value, sizeof value, "%d ranks, %d per node, executor %d", job->ranks,
             topology.ranks_per_node, suite->job[index].executor);
    key = mp_digest(mp_digest(mp_digest(key, texts->model), mp_job_gate(job, texts->gate)), value);
    for (int p = 0; p < count_places(suite, index); p++)
        for (const struct mp_option *option = places[p].table; option->name; option++) {
            if (!mp_option_decides(option))
                continue;
            int first = find_value(suite, index, &places[p], option, value, &differs);
            key = mp_digest(mp_digest(key, option->name), value);
            if (!differs || length >= MODEL_SIZE)
                continue;
            if (strlen(value) > LONG_VALUE)
                snprintf(value, sizeof value, "of job %d", first + 1);
            length += (size_t)snprintf(texts->model + length, MODEL_SIZE - length, ", %s %s",
                                       option->name, *value ? value : "none");
        }
    snprintf(texts->setting, sizeof texts->setting, "%016" PRIx64, key);
}

/* What loads of the job are called: measured and predicted jobs of the same loads alike. */
static const char *format_workload(const struct mp_suite *suite, int index, char *text,
                                   size_t size) {
    const struct mp_predict_job *job = &suite->job[index];
    return mp_suite_is_predicted(suite, index) ? mp_predict_job_workload(job, text, size)
                                               : mp_job_workload(&job->file.job, text, size);
}

static struct mp_store_run describe(const struct mp_ended_job *ended, struct texts *texts) {
    const struct mp_suite *suite = ended->suite;
    const struct mp_job_file *file = &suite->job[ended->index].file;
    const struct mp_job *job = &file->job;
    struct mp_topology topology = mp_job_topology(job, job->ranks);
    describe_setting(suite, ended->index, texts);
    return (struct mp_store_run){
        .suite = suite->name,
        .job = job->name,
        .suite_run = ended->suite_run,
        .system = job->system,
        .executor = mp_suite_is_predicted(suite, ended->index) ? "predicted" : "measured",
        .workload = format_workload(suite, ended->index, texts->workload, sizeof texts->workload),
        .gate = texts->gate,
        .model = texts->model,
        .setting_key = texts->setting,
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
