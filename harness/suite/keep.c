#include "harness/suite/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "harness/suite/command.h"
#include "harness/suite/files.h"
#include "harness/suite/launch.h"
#include "harness/suite/paths.h"
#include "reference/base/arena.h"
#include "reference/base/characters.h"
#include "reference/base/option.h"
#include "reference/base/whole_file.h"

/* ---- notes ---- */

#define FIELD(member) offsetof(struct mp_note, member)
#define TEXT(name, member, or_else)                                                                \
    {                                                                                              \
        name, MP_OPTION_STRING, FIELD(run.member), "bytes", or_else, 0, MP_YAML_SIZE_LIMIT, NULL,  \
            "of the run"                                                                           \
    }
#define NUMBER(name, member, least)                                                                \
    { name, MP_OPTION_INT, FIELD(run.member), "", NULL, least, INT_MAX, NULL, "of the run" }

static const struct mp_option fact_rows[] = {
    {"", MP_OPTION_KEY, .offset = offsetof(struct mp_store_fact, name)},
    {"", MP_OPTION_STRING, offsetof(struct mp_store_fact, value), "bytes", NULL, 0,
     MP_YAML_SIZE_LIMIT, NULL, ""},
    {0},
};
static const struct mp_option_form fact = {"a text", fact_rows, sizeof(struct mp_store_fact), NULL};
static const struct mp_option note_rows[] = {
    TEXT("suite", suite, NULL),
    TEXT("job", job, NULL),
    TEXT("suite_run", suite_run, NULL),
    TEXT("system", system, NULL),
    TEXT("executor", executor, NULL),
    TEXT("workload", workload, NULL),
    TEXT("gate", gate, ""),
    TEXT("model", model, ""),
    TEXT("setting_key", setting_key, ""),
    TEXT("status", status, ""),
    TEXT("reason", reason, ""),
    TEXT("started_at", started_at, NULL),
    TEXT("suite_text", suite_text, ""),
    TEXT("job_text", job_text, ""),
    TEXT("command", command, ""),
    NUMBER("round", round, 0),
    NUMBER("ranks", ranks, 1),
    NUMBER("nodes", nodes, 1),
    NUMBER("ranks_per_node", ranks_per_node, 1),
    {"iterations_wanted", MP_OPTION_INT64, FIELD(run.iterations_wanted), "", NULL, 0, 9e18, NULL,
     "of the run"},
    {"unattainable", MP_OPTION_BOOL, FIELD(run.unattainable), "", NULL, 0, 0, NULL,
     "of its system"},
    {"facts", MP_OPTION_NAMED, FIELD(fact), "", NULL, 0, MP_NOTE_FACTS, &fact, "of the run"},
    {0},
};

/* ---- writing ---- */

/* The text, or where it is no UTF-8 a copy of its other bytes; NULL stays so. */
static const char *readable(struct mp_arena *arena, const char *text) {
    uint32_t character;
    int length = 1;
    for (const char *at = text; at && *at && length; at += length)
        length = mp_character_decode(at, &character);
    char *plain = length ? NULL : mp_arena_text(arena, text);
    for (char *at = plain; at && *at; at++)
        if ((unsigned char)*at > 0x7f)
            *at = '?';
    return plain ? plain : length ? text : "?";
}

static int write_facts(const struct mp_store_run *run, struct mp_arena *arena, FILE *stream,
                       struct mp_error *error) {
    fputs(run->facts ? "facts:\n" : "facts: {}\n", stream);
    for (int i = 0; i < run->facts; i++) {
        fputs("  ", stream);
        MP_TRY(mp_yaml_write_text(stream, readable(arena, run->fact[i].name), error));
        fputs(": ", stream);
        MP_TRY(mp_yaml_write_text(stream, readable(arena, run->fact[i].value), error));
        fputc('\n', stream);
    }
    return MP_OK;
}

int mp_note_write(const struct mp_store_run *run, const char *path, struct mp_error *error) {
    struct mp_note note = {.run = *run};
    const struct mp_option_group group[] = {{"", note_rows, &note, "a note"}, {0}};
    struct mp_whole_file file;
    MP_AUTO(arena) struct mp_arena arena = {0};
    struct mp_error own = {0};
    for (const struct mp_option *row = note_rows; row->name; row++) {
        const char **text = (const char **)((char *)&note + row->offset);
        if (row->type == MP_OPTION_STRING)
            *text = readable(&arena, *text);
    }
    MP_TRY(mp_whole_file_open(&file, path, error));
    errno = 0;
    int code =
        mp_groups_write(group, file.stream, &own) || write_facts(run, &arena, file.stream, &own)
            ? mp_whole_file_fail(&file, error)
            : MP_OK;
    return mp_whole_file_close(&file, code, error);
}

/* ---- reading ---- */

int mp_note_read(const char *path, struct mp_note *note, struct mp_error *error) {
    const struct mp_reading reading = {path, error};
    memset(note, 0, sizeof *note);
    MP_TRY(mp_yaml_load(path, &note->document, error));
    MP_TRY(mp_options_read(&reading, note_rows, "a note", note->document, note));
    note->run.fact = note->fact;
    note->run.facts = note->facts;
    return MP_OK;
}

void mp_note_destroy(struct mp_note *note) {
    mp_yaml_destroy(note->document);
    memset(note, 0, sizeof *note);
}

/* ---- in use ---- */

int mp_note_hold(const char *folder) {
    int held = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (held < 0)
        return -1;
    /* Programs inherit it: a launcher outlives a moeperf that is killed, until its ranks end. */
    if (!flock(held, LOCK_EX | LOCK_NB) && !fcntl(held, F_SETFD, 0))
        return held;
    close(held);
    return -1;
}

bool mp_note_is_held(const char *folder) {
    int tried = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tried < 0)
        return false;
    bool is_held = flock(tried, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close(tried);
    return is_held;
}

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

MP_END(slices, struct mp_store_slice *, free(*it))

int mp_suite_keep(struct mp_store *store, const struct mp_ended_job *ended,
                  struct mp_error *error) {
    struct texts texts;
    struct mp_store_run run = describe(ended, &texts);
    MP_AUTO(files) struct mp_files spools = {NULL, 0};
    MP_AUTO(slices) struct mp_store_slice *slice = NULL;
    int64_t kept, recordings = 0;
    if (ended->spools && !access(ended->spools, F_OK))
        MP_TRY(mp_files_list(ended->spools, NULL, &spools, error));
    if (ended->slices)
        MP_TRY(mp_slices_read(ended->slices, &slice, &run.slices, error));
    /* A file that the disk had no room for means that nothing counts, not that everything does. */
    static const struct mp_store_slice nowhere;
    run.slice = ended->slices && !slice ? &nowhere : slice;
    MP_TRY(
        mp_store_ingest(store, &run, (const char *const *)spools.path, spools.count, &kept, error));
    MP_TRY(mp_store_recordings(store, kept, &recordings, error));
    if (ended->spools && !ended->keep_spools && recordings == spools.count) {
        mp_files_remove(&spools);
        rmdir(ended->spools);
    }
    return MP_OK;
}

/* ---- jobs whose moeperf was killed ---- */

static int ingest(struct mp_store *store, const char *folder, const struct mp_store_run *run,
                  const struct mp_files *spools, FILE *stream, struct mp_error *error) {
    int64_t last = 0, run_id = 0;
    char job[256];
    MP_TRY(mp_store_numbers(store, "SELECT max(run_id) FROM run", NULL, 0, &last, 1, error));
    MP_TRY(mp_store_ingest(store, run, (const char *const *)spools->path, spools->count, &run_id,
                           error));
    fprintf(stream, "%s: job %s: %s run %lld of %s\n", folder,
            mp_clean_text(job, sizeof job, run->job), run_id > last ? "added as" : "is already",
            (long long)run_id, mp_store_path(store));
    return MP_OK;
}

/* What is known of the job, unless it still runs. */
static int read_note(const char *folder, struct mp_note *note, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    if (mp_note_is_held(folder))
        return mp_fail(error, MP_EINVAL,
                       "%s: still runs; its moeperf adds it, or wait until its ranks have ended",
                       folder);
    MP_TRY(mp_path_join(path, folder, MP_NOTE_NAME, error));
    return mp_note_read(path, note, error);
}

static int keep_job(struct mp_store *store, const char *folder, const struct mp_hosts *hosts,
                    FILE *stream, struct mp_error *error) {
    char recordings[MP_PATH_SIZE], slices[MP_PATH_SIZE], job[256];
    MP_AUTO(note) struct mp_note note = {.document = NULL};
    MP_AUTO(files) struct mp_files spools = {NULL, 0};
    MP_AUTO(slices) struct mp_store_slice *slice = NULL;
    MP_TRY(read_note(folder, &note, error));
    MP_TRY(mp_path_join(recordings, folder, "spools", error));
    MP_TRY(mp_path_join(slices, folder, MP_SLICES_NAME, error));
    MP_TRY(mp_slices_read(slices, &slice, &note.run.slices, error));
    note.run.slice = slice;
    MP_TRY(mp_hosts_gather(hosts, recordings, error));
    if (!access(recordings, F_OK))
        MP_TRY(mp_files_list(recordings, NULL, &spools, error));
    bool has_ended = note.run.status != NULL;
    if (!has_ended) {
        note.run.status = "interrupted";
        note.run.reason = "moeperf was killed";
        note.run.unless_completed = true;
    }
    if (has_ended || mp_files_hold_anything(&spools))
        return ingest(store, folder, &note.run, &spools, stream, error);
    fprintf(stream, "%s: job %s: nothing was recorded\n", folder,
            mp_clean_text(job, sizeof job, note.run.job));
    return MP_OK;
}

/* Whether this is the folder of a job that nobody has put into a database. */
static bool has_note(const char *folder) {
    char path[MP_PATH_SIZE];
    struct mp_error unused = {0};
    return !mp_path_join(path, folder, MP_NOTE_NAME, &unused) && !access(path, F_OK);
}

/* The folders of jobs with a note: `folder` itself or those in it, by name. */
static int find_jobs(const char *folder, struct mp_files *jobs, struct mp_error *error) {
    MP_AUTO(files) struct mp_files entries = {NULL, 0};
    if (has_note(folder))
        return mp_files_add(jobs, folder, error);
    MP_TRY(mp_files_list(folder, NULL, &entries, error));
    for (int i = 0; i < entries.count; i++)
        if (has_note(entries.path[i]))
            MP_TRY(mp_files_add(jobs, entries.path[i], error));
    return jobs->count > 0
               ? MP_OK
               : mp_fail(error, MP_ENOTFOUND,
                         "%s: no job to add: neither it nor a folder in it has a " MP_NOTE_NAME
                         ", which moeperf run leaves of a job that it could not add",
                         folder);
}

int mp_suite_check_killed(const char *folder, struct mp_error *error) {
    MP_AUTO(note) struct mp_note note = {.document = NULL};
    MP_AUTO(files) struct mp_files jobs = {NULL, 0};
    MP_TRY(find_jobs(folder, &jobs, error));
    return read_note(jobs.path[0], &note, error);
}

char *mp_suite_killed_command(const char *folder, const char *database,
                              const struct mp_hosts *hosts) {
    const bool is_copied = hosts && hosts->copy;
    const char *const words[] = {"moeperf", "run",
                                 "--from",  folder,
                                 "--db",    database,
                                 "--hosts", hosts ? hosts->file : "",
                                 "--copy",  is_copied ? hosts->copy : ""};
    enum { WORDS = MP_LENGTH(words), OF_HOSTS = 4 };
    const struct mp_command command = {.word = (char **)(uintptr_t)words,
                                       .count = is_copied ? WORDS : WORDS - OF_HOSTS};
    return mp_command_text(&command);
}

int mp_suite_keep_killed(struct mp_store *store, const char *folder, const struct mp_hosts *hosts,
                         FILE *stream, struct mp_error *error) {
    MP_AUTO(files) struct mp_files jobs = {NULL, 0};
    MP_TRY(find_jobs(folder, &jobs, error));
    for (int i = 0; i < jobs.count; i++)
        MP_TRY(keep_job(store, jobs.path[i], hosts, stream, error));
    return MP_OK;
}
