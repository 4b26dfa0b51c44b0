/* Keeping ended jobs: see keep.h. */
#include "harness/suite/keep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/suite/files.h"
#include "harness/suite/launch.h"
#include "harness/suite/note.h"
#include "reference/base/characters.h"

enum { MODEL_SIZE = 2048, LONG_VALUE = 80, WORKLOAD_SIZE = MP_TEXT_SIZE + 16 };

void mp_suite_format_utc(const char *format, char *text, size_t size) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, size, format, &utc);
}

static const char *format_value(const struct mp_suite *suite, int job, int table,
                                const struct mp_option *option, char value[MP_TEXT_SIZE]) {
    struct mp_option_group group[3];
    mp_predict_job_deciding(&suite->job[job], true, group);
    return mp_options_format(option, group[table].values, value, MP_TEXT_SIZE);
}

/* The first job of the suite with the same value as this one; `differs`: not all jobs of its kind
 * have it. */
static int find_value(const struct mp_suite *suite, int job, int table,
                      const struct mp_option *option, char value[MP_TEXT_SIZE], bool *differs) {
    char other[MP_TEXT_SIZE];
    int first = job;
    *differs = false;
    format_value(suite, job, table, option, value);
    for (int i = suite->count - 1; i >= 0; i--) {
        if (mp_suite_is_predicted(suite, job) != mp_suite_is_predicted(suite, i))
            continue;
        format_value(suite, i, table, option, other);
        if (strcmp(value, other) != 0)
            *differs = true;
        else
            first = i;
    }
    return first;
}

/* For people: the sizes, and what the suite's jobs do not share of what decides.  A long text is
 * named by the job that has it first. */
static void format_model(const struct mp_suite *suite, int index, char *text, size_t size) {
    const struct mp_predict_job *job = &suite->job[index];
    struct mp_option_group group[3];
    char value[MP_TEXT_SIZE];
    bool differs;
    int groups = mp_predict_job_deciding(job, mp_suite_is_predicted(suite, index), group);
    snprintf(text, size, "%s, threads %d", mp_job_model(&job->file.job, value),
             job->file.job.threads);
    for (int g = 0; g < groups; g++)
        for (const struct mp_option *option = group[g].table; option->name; option++) {
            if (!mp_option_decides(option))
                continue;
            int first = find_value(suite, index, g, option, value, &differs);
            if (!differs)
                continue;
            if (strlen(value) > LONG_VALUE)
                snprintf(value, sizeof value, "of job %d", first + 1);
            mp_text_add(text, size, ", ", "%s %s", option->name, *value ? value : "none");
        }
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
    char workload[WORKLOAD_SIZE], model[MODEL_SIZE], gate[MP_GATE_WORDS], setting[20];
};

static struct mp_store_run describe(const struct mp_ended_job *ended, struct texts *texts) {
    const struct mp_suite *suite = ended->suite;
    const struct mp_job_file *file = &suite->job[ended->index].file;
    const struct mp_job *job = &file->job;
    struct mp_topology topology = mp_job_topology(job, job->ranks);
    bool is_predicted = mp_suite_is_predicted(suite, ended->index);
    format_model(suite, ended->index, texts->model, sizeof texts->model);
    snprintf(texts->setting, sizeof texts->setting, "%016" PRIx64,
             mp_predict_job_setting(&suite->job[ended->index], is_predicted));
    return (struct mp_store_run){
        .suite = suite->name,
        .job = job->name,
        .suite_run = ended->suite_run,
        .system = job->system,
        .executor = is_predicted ? "predicted" : "measured",
        .workload = format_workload(suite, ended->index, texts->workload, sizeof texts->workload),
        .gate = mp_job_gate(job, texts->gate),
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

int mp_suite_keep(struct mp_store *store, const struct mp_ended_job *ended,
                  struct mp_error *error) {
    struct texts texts;
    struct mp_store_run run = describe(ended, &texts);
    struct mp_files spools = {NULL, 0};
    struct mp_store_slice *slice = NULL;
    int64_t kept, recordings = 0;
    int code = ended->spools && !access(ended->spools, F_OK)
                   ? mp_files_list(ended->spools, NULL, &spools, error)
                   : MP_OK;
    if (!code && ended->slices)
        code = mp_slices_read(ended->slices, &slice, &run.slices, error);
    /* A file that the disk had no room for means that nothing counts, not that everything does. */
    static const struct mp_store_slice nowhere;
    run.slice = ended->slices && !slice ? &nowhere : slice;
    if (!code)
        code = mp_store_ingest(store, &run, (const char *const *)spools.path, spools.count, &kept,
                               error);
    if (!code)
        code = mp_store_recordings(store, kept, &recordings, error);
    if (!code && ended->spools && !ended->keep_spools && recordings == spools.count) {
        mp_files_remove(&spools);
        rmdir(ended->spools);
    }
    mp_files_free(&spools);
    free(slice);
    return code;
}
