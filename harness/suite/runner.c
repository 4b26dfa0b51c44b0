/* Runner: see runner.h. */
#include "harness/suite/runner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/suite/estimate.h"
#include "harness/suite/launch.h"
#include "harness/suite/paths.h"

enum { MODEL_SIZE = 1024, LONG_VALUE = 80 };

/* One job of one round while it runs. */
struct turn {
    const struct mp_runner *runner;
    struct mp_job_file *file;
    int round, index; /* of the job in the suite */
    int number;       /* of the job over all rounds, from 1 */
    char folder[MP_PATH_SIZE - 64], job_path[MP_PATH_SIZE], log[MP_PATH_SIZE], spools[MP_PATH_SIZE];
    char *job_text; /* as the ranks read it, owned */
    char started_at[32];
    struct mp_command command;
    struct mp_estimate *estimate;
};

static void format_utc(const char *format, char *text, size_t size) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, size, format, &utc);
}

/* A name as part of a file's name. */
static void copy_plain(const char *name, char *plain, size_t size) {
    size_t length = 0;
    for (; name[length] && length + 1 < size; length++) {
        unsigned char letter = (unsigned char)name[length];
        bool is_plain =
            isalnum(letter) || letter == '-' || letter == '_' || (letter == '.' && length > 0);
        plain[length] = is_plain ? (char)letter : '_';
    }
    plain[length] = '\0';
}

/* Options beside the sizes that change what is computed, or how long that takes. */
static const char *const deciding[] = {
    "text",    "validation-share", "learning-rate", "auxiliary-weight", "beta1",      "beta2",
    "epsilon", "weight-decay",     "seed",          "restore",          "check-plans"};

/* The first job of the suite with the same value as this one; `differs`: not all jobs have it. */
static int find_value(const struct mp_suite *suite, const struct mp_job *job, const char *name,
                      char value[MP_TEXT_SIZE], bool *differs) {
    const struct mp_option *option = mp_options_find(mp_job_options, name);
    char other[MP_TEXT_SIZE];
    int first = suite->count;
    *differs = false;
    mp_options_format(option, job, value, MP_TEXT_SIZE);
    for (int i = suite->count - 1; i >= 0; i--) {
        mp_options_format(option, &suite->job[i].job, other, sizeof other);
        if (strcmp(value, other) != 0)
            *differs = true;
        else
            first = i;
    }
    return first;
}

/* Only jobs of a suite that differ in nothing named here are compared: always the sizes, and of the
 * deciding options those that its jobs do not share.  A long text is named by the job that has it
 * first. */
static void format_model(const struct mp_suite *suite, const struct mp_job *job, char *text,
                         size_t size) {
    char value[MP_TEXT_SIZE];
    bool differs;
    size_t length = (size_t)snprintf(
        text, size,
        "layers %d, width %d, heads %d, experts %d x %d, sequence %d, batch %d, threads %d",
        job->layers, job->width, job->heads, job->experts, job->expert_width, job->sequence,
        job->batch, job->threads);
    for (size_t i = 0; i < sizeof deciding / sizeof *deciding && length < size; i++) {
        int first = find_value(suite, job, deciding[i], value, &differs);
        if (!differs)
            continue;
        if (strlen(value) > LONG_VALUE)
            snprintf(value, sizeof value, "of job %d", first + 1);
        length += (size_t)snprintf(text + length, size - length, ", %s %s", deciding[i],
                                   *value ? value : "none");
    }
}

static int write_text(const char *path, const char *text, struct mp_error *error) {
    FILE *file = fopen(path, "we");
    bool is_written = file && fputs(text, file) >= 0;
    if (file && fclose(file))
        is_written = false;
    if (!is_written)
        return mp_fail(error, errno == ENOSPC ? MP_ENOSPACE : MP_EIO, "can't write %s: %s", path,
                       strerror(errno));
    return MP_OK;
}

static int format_job(const struct mp_job_file *file, char **text, struct mp_error *error) {
    size_t size;
    FILE *stream = open_memstream(text, &size);
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "no memory for a job file");
    int code = mp_job_write(file, stream, error);
    if (fclose(stream) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for a job file");
    return code;
}

/* The job's folder with its job file. */
static int prepare(struct turn *turn, const char *suite_run, struct mp_error *error) {
    char name[48];
    copy_plain(turn->file->job.name, name, sizeof name);
    int length = snprintf(turn->folder, sizeof turn->folder, "%s/%s/%03d-%s", turn->runner->work,
                          suite_run, turn->number, name);
    if (length >= (int)sizeof turn->folder)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", turn->runner->work);
    snprintf(turn->job_path, sizeof turn->job_path, "%s/job.yaml", turn->folder);
    snprintf(turn->log, sizeof turn->log, "%s/log", turn->folder);
    snprintf(turn->spools, sizeof turn->spools, "%s/spools", turn->folder);
    int code = format_job(turn->file, &turn->job_text, error);
    if (!code)
        code = mp_path_create_folder(turn->spools, error);
    if (!code)
        code = write_text(turn->job_path, turn->job_text, error);
    return code;
}

static void show_progress(void *context, const struct mp_launch_progress *progress) {
    struct turn *turn = context;
    const struct mp_suite *suite = turn->runner->suite;
    struct mp_progress_state state = {.job = turn->number,
                                      .jobs = suite->repeat * suite->count,
                                      .name = turn->file->job.name,
                                      .iteration = progress->iteration,
                                      .iterations = progress->iterations,
                                      .loss = progress->loss,
                                      .ms = progress->ms};
    mp_estimate_update(turn->estimate, progress->iteration, progress->iterations);
    mp_estimate_read(turn->estimate, &state.share, &state.seconds_left);
    mp_progress_draw(turn->runner->progress, &state);
}

/* Starts the job and waits for its end; what goes wrong becomes the result's reason. */
static void launch(struct turn *turn, const char *suite_run, struct mp_launch_result *result) {
    const struct mp_runner *runner = turn->runner;
    struct mp_error error = {0};
    struct mp_launch job = {.command = &turn->command,
                            .log = turn->log,
                            .threads = turn->file->job.threads,
                            .timeout = runner->suite->timeout,
                            .signals = runner->signals,
                            .watch = show_progress,
                            .context = turn};
    int code = prepare(turn, suite_run, &error);
    format_utc("%Y-%m-%dT%H:%M:%SZ", turn->started_at, sizeof turn->started_at);
    if (!code) {
        const char *const arguments[] = {turn->job_path, "--spool-directory", turn->spools,
                                         "--progress", NULL};
        code = mp_command_create(runner->launcher, turn->file->job.ranks, runner->trainer,
                                 arguments, &turn->command, &error);
    }
    mp_estimate_begin_job(turn->estimate, turn->index);
    if (!code)
        code = mp_launch_run(&job, result, &error);
    mp_estimate_end_job(turn->estimate);
    if (code) {
        *result = (struct mp_launch_result){.end = MP_LAUNCH_FAILED};
        snprintf(result->reason, sizeof result->reason, "%s", error.text);
    }
}

/* Paths of the files in the spool folder. */
struct spools {
    char **path; /* [count], owned */
    int count;
};

static void destroy_spools(struct spools *spools) {
    for (int i = 0; i < spools->count; i++)
        free(spools->path[i]);
    free(spools->path);
}

static int list_spools(const char *folder, struct spools *spools, struct mp_error *error) {
    DIR *stream = opendir(folder);
    int code = MP_OK;
    *spools = (struct spools){NULL, 0};
    for (struct dirent *entry; stream && !code && (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        char **grown = realloc(spools->path, ((size_t)spools->count + 1) * sizeof *grown);
        if (grown)
            spools->path = grown;
        if (!grown || asprintf(&grown[spools->count], "%s/%s", folder, entry->d_name) < 0)
            code = mp_fail(error, MP_ENOMEM, "no memory for the names of %s", folder);
        else
            spools->count++;
    }
    if (stream)
        closedir(stream);
    return code;
}

static void remove_spools(const struct spools *spools, const char *folder) {
    for (int i = 0; i < spools->count; i++)
        unlink(spools->path[i]);
    rmdir(folder);
}

/* Puts the run with all its spools into the database, then removes the spools. */
static int ingest(struct turn *turn, const char *suite_run, const struct mp_launch_result *result,
                  struct mp_error *error) {
    const struct mp_suite *suite = turn->runner->suite;
    const struct mp_job *job = &turn->file->job;
    static const char *const gates[] = {"gshard", "switch"};
    char workload[64], model[MODEL_SIZE];
    int on_node = job->ranks_per_node < job->ranks ? job->ranks_per_node : job->ranks;
    format_model(suite, job, model, sizeof model);
    char *command = mp_command_text(&turn->command);
    struct mp_store_run run = {.suite = suite->name,
                               .job = job->name,
                               .suite_run = suite_run,
                               .system = job->system,
                               .executor = "measured",
                               .workload = mp_job_workload(job, workload, sizeof workload),
                               .gate = gates[job->gate],
                               .model = model,
                               .status = mp_launch_end_name(result->end),
                               .reason = *result->reason ? result->reason : NULL,
                               .started_at = turn->started_at,
                               .suite_text = suite->text,
                               .job_text = turn->job_text,
                               .command = command,
                               .round = turn->round,
                               .ranks = job->ranks,
                               .nodes = (job->ranks + on_node - 1) / on_node,
                               .ranks_per_node = on_node,
                               .iterations_wanted = job->iterations,
                               .unattainable =
                                   turn->file->system->capabilities & MP_SYSTEM_UNATTAINABLE};
    struct spools spools;
    int code = list_spools(turn->spools, &spools, error);
    if (!code)
        code = mp_store_ingest(turn->runner->store, &run, (const char *const *)spools.path,
                               spools.count, NULL, error);
    if (!code && !turn->runner->keep_spools)
        remove_spools(&spools, turn->spools);
    destroy_spools(&spools);
    free(command);
    return code;
}

static void say_end(const struct turn *turn, const struct mp_launch_result *result) {
    const struct mp_suite *suite = turn->runner->suite;
    const struct mp_launch_progress *progress = &result->progress;
    char round[48] = "";
    if (suite->repeat > 1)
        snprintf(round, sizeof round, ", round %d of %d", turn->round + 1, suite->repeat);
    if (result->end == MP_LAUNCH_COMPLETE)
        mp_progress_say(turn->runner->progress, MP_TONE_GOOD,
                        "[%d/%d] %s%s: %lld iterations in %.1f s, loss %.4f", turn->number,
                        suite->repeat * suite->count, turn->file->job.name, round,
                        (long long)progress->iteration, result->seconds, progress->loss);
    else
        mp_progress_say(turn->runner->progress, MP_TONE_BAD, "[%d/%d] %s%s: %s: %s (log: %s)",
                        turn->number, suite->repeat * suite->count, turn->file->job.name, round,
                        mp_launch_end_name(result->end), result->reason, turn->log);
}

static void run_turn(struct turn *turn, struct mp_runner_result *total) {
    struct mp_launch_result result = {0};
    struct mp_error error = {0};
    launch(turn, total->suite_run, &result);
    say_end(turn, &result);
    bool is_kept = ingest(turn, total->suite_run, &result, &error) == MP_OK;
    if (!is_kept)
        total->lost++;
    if (!is_kept)
        mp_progress_say(turn->runner->progress, MP_TONE_BAD,
                        "%s: not in the database: %s (its records stay in %s)",
                        turn->file->job.name, error.text, turn->spools);
    if (!is_kept || result.end == MP_LAUNCH_FAILED || result.end == MP_LAUNCH_TIMEOUT)
        total->failed++;
    else if (result.end == MP_LAUNCH_INTERRUPTED)
        total->interrupted++;
    else
        total->complete++;
    mp_command_destroy(&turn->command);
    free(turn->job_text);
}

/* Everything that no job can do without, before the first one starts. */
static int check_programs(const struct mp_runner *runner, struct mp_error *error) {
    static const char *const no_arguments[] = {NULL};
    char path[MP_PATH_SIZE];
    if (access(runner->trainer, X_OK))
        return mp_fail(error, MP_ENOTFOUND, "can't run %s: %s", runner->trainer, strerror(errno));
    for (int i = 0; i < runner->suite->count; i++) {
        struct mp_command command;
        int code = mp_command_create(runner->launcher, runner->suite->job[i].job.ranks,
                                     runner->trainer, no_arguments, &command, error);
        if (code)
            return code;
        if (!mp_path_search(command.word[0], path)) {
            bool is_mpirun = !strcmp(command.word[0], "mpirun");
            code = mp_fail(
                error, MP_ENOTFOUND, "%s is not installed; job %.100s with %d ranks needs it%s",
                command.word[0], runner->suite->job[i].job.name, runner->suite->job[i].job.ranks,
                is_mpirun ? " (Debian and Ubuntu: package openmpi-bin)" : "");
        }
        mp_command_destroy(&command);
        if (code)
            return code;
    }
    return MP_OK;
}

int mp_runner_run(const struct mp_runner *runner, struct mp_runner_result *result,
                  struct mp_error *error) {
    const struct mp_suite *suite = runner->suite;
    struct mp_estimate *estimate = NULL;
    char name[48], time_text[32];
    memset(result, 0, sizeof *result);
    copy_plain(suite->name, name, sizeof name);
    format_utc("%Y%m%dT%H%M%SZ", time_text, sizeof time_text);
    snprintf(result->suite_run, sizeof result->suite_run, "%s-%s-%d", name, time_text,
             (int)getpid());
    int code = check_programs(runner, error);
    if (!code)
        code = mp_path_create_folder(runner->work, error);
    if (!code)
        code = mp_estimate_create(suite->count, suite->repeat, &estimate, error);
    for (int number = 0; number < suite->repeat * suite->count && !code; number++) {
        if (runner->signals && *runner->signals) {
            result->left_out = suite->repeat * suite->count - number;
            break;
        }
        struct turn turn = {.runner = runner,
                            .file = &suite->job[number % suite->count],
                            .round = number / suite->count,
                            .index = number % suite->count,
                            .number = number + 1,
                            .estimate = estimate};
        run_turn(&turn, result);
    }
    mp_progress_end(runner->progress);
    mp_estimate_destroy(estimate);
    return code;
}
