#include "harness/suite/runner.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/suite/keep.h"
#include "harness/suite/launch.h"
#include "harness/suite/paths.h"
#include "harness/suite/predicted.h"
#include "harness/suite/progress.h"
#include "harness/suite/suite.h"
#include "reference/base/shell.h"
#include "reference/base/whole_file.h"
#include "results/compare/gate.h"

/* What all turns share; and of two builds in turns: */
struct pairs {
    struct mp_known_bounds *bounds; /* of predicted jobs */
    char id[128];
    char slice[32]; /* s, as text */
    bool are_same;  /* the same program on both sides */
};

/* One job of one round while it runs. */
struct turn {
    const struct mp_runner *runner;
    const struct mp_predict_job *work;
    struct mp_job_file *file; /* of `work` */
    int round, index;         /* of the job in the suite */
    int number;               /* of the job over all rounds and sides, from 1 */
    const struct pairs *pairs;
    bool is_base; /* of a pair */
    const char *suite_run;
    char folder[MP_PATH_SIZE - 64], job_path[MP_PATH_SIZE], log[MP_PATH_SIZE], spools[MP_PATH_SIZE];
    char loads[MP_PATH_SIZE]; /* of a trace that is replayed */
    char note[MP_PATH_SIZE];  /* there until the job is in the database */
    char slices[MP_PATH_SIZE];
    bool is_sliced;       /* it runs beside its sibling */
    bool is_spread;       /* its folder is on all hosts */
    struct turn *sibling; /* the other side of its pair; NULL: it runs alone */
    struct mp_launch_progress progress;
    int held;       /* mp_note_hold's; -1: none */
    char *job_text; /* as the ranks read it, owned */
    char started_at[32];
    struct mp_command command;
    struct mp_estimate *estimate;
};

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

static int write_text(const char *path, const char *text, struct mp_error *error) {
    struct mp_whole_file file;
    MP_TRY(mp_whole_file_open(&file, path, error));
    fputs(text, file.stream);
    return mp_whole_file_close(&file, MP_OK, error);
}

static bool is_predicted(const struct turn *turn) {
    return mp_suite_is_predicted(turn->runner->suite, turn->index);
}

/* NULL: its system can do it. */
static const char *refusal_of(const struct turn *turn) {
    return turn->runner->suite->refusal[turn->index];
}

/* Whether a job has a turn in this round: one that is refused only has one to say so. */
static bool has_turn(const struct mp_runner *runner, int index, int round) {
    return round == 0 || !runner->suite->refusal[index];
}

/* Jobs over all rounds and sides. */
static int count_turns(const struct mp_runner *runner) {
    const int possible = mp_suite_possible(runner->suite);
    return (runner->suite->count + possible * (runner->suite->repeat - 1)) *
           (runner->against ? 2 : 1);
}

static const char *trainer_of(const struct turn *turn) {
    return turn->is_base ? turn->runner->against : turn->runner->trainer;
}

/* The job's folder with its job file. */
static int prepare(struct turn *turn, struct mp_error *error) {
    char name[48];
    copy_plain(turn->file->job.name, name, sizeof name);
    int length = snprintf(turn->folder, sizeof turn->folder, "%s/%s/%03d-%s", turn->runner->work,
                          turn->suite_run, turn->number, name);
    if (length >= (int)sizeof turn->folder)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", turn->runner->work);
    snprintf(turn->job_path, sizeof turn->job_path, "%s/job.yaml", turn->folder);
    snprintf(turn->log, sizeof turn->log, "%s/log", turn->folder);
    snprintf(turn->spools, sizeof turn->spools, "%s/spools", turn->folder);
    snprintf(turn->loads, sizeof turn->loads, "%s/loads", turn->folder);
    snprintf(turn->note, sizeof turn->note, "%s/" MP_NOTE_NAME, turn->folder);
    snprintf(turn->slices, sizeof turn->slices, "%s/" MP_SLICES_NAME, turn->folder);
    MP_TRY(mp_path_create_folder(turn->spools, error));
    turn->held = mp_note_hold(turn->folder);
    if (!is_predicted(turn) && !refusal_of(turn))
        MP_TRY(mp_suite_write_loads(&turn->file->job, turn->loads, error));
    MP_TRY(mp_predict_job_text(turn->work, is_predicted(turn), &turn->job_text, error));
    return write_text(turn->job_path, turn->job_text, error);
}

static void show_progress(void *context, const struct mp_launch_progress *progress) {
    struct turn *turn = context;
    int64_t iteration = progress->iteration, iterations = progress->iterations;
    turn->progress = *progress;
    if (turn->sibling) { /* as one job: both do the same */
        iteration += turn->sibling->progress.iteration;
        iterations *= 2;
    }
    struct mp_progress_state state = {.job = turn->number,
                                      .jobs = count_turns(turn->runner),
                                      .name = turn->file->job.name,
                                      .iteration = iteration,
                                      .iterations = iterations,
                                      .loss = progress->loss,
                                      .ms = progress->ms};
    mp_estimate_update(turn->estimate, iteration, iterations);
    mp_estimate_read(turn->estimate, &state.share, &state.seconds_left);
    mp_progress_draw(turn->runner->progress, &state);
}

static struct mp_launch launch_of(struct turn *turn) {
    return (struct mp_launch){.command = &turn->command,
                              .log = turn->log,
                              .slices = turn->slices,
                              .threads = turn->file->job.threads,
                              .ranks = turn->file->job.ranks,
                              .timeout = turn->runner->suite->timeout,
                              .signals = turn->runner->signals,
                              .watch = show_progress,
                              .context = turn};
}

static int launch(struct turn *turn, struct mp_launch_result *result, struct mp_error *error) {
    const struct mp_launch job = launch_of(turn);
    return mp_launch_run(&job, result, error);
}

static int predict(struct turn *turn, struct mp_launch_result *result, struct mp_error *error) {
    const struct mp_runner *runner = turn->runner;
    struct mp_prediction_summary summary;
    const struct mp_predicted predicted = {.job = turn->work,
                                           .cluster = runner->suite->cluster[turn->index],
                                           .spools = turn->spools,
                                           .timeout = runner->suite->timeout,
                                           .signals = runner->signals,
                                           .bounds = turn->pairs->bounds,
                                           .watch = show_progress,
                                           .context = turn};
    return mp_predicted_run(&predicted, result, &summary, error);
}

static int create_command(struct turn *turn, struct mp_error *error) {
    const char *const arguments[] = {turn->job_path, "--spool-directory", turn->spools,
                                     "--progress", NULL};
    return mp_command_create(turn->runner->launcher, turn->file->job.ranks, trainer_of(turn),
                             arguments, &turn->command, error);
}

enum { PAIR_FACTS = 4 };

/* What is known of the job, for its note (`result` is NULL then) and for the database; the command
 * is to be freed. */
static struct mp_ended_job describe(const struct turn *turn, const struct mp_launch_result *result,
                                    struct mp_store_fact facts[PAIR_FACTS], char **command) {
    facts[0] = (struct mp_store_fact){MP_FACT_PAIRS, turn->pairs->id};
    facts[1] = (struct mp_store_fact){MP_FACT_PAIRS_SIDE, turn->is_base ? "base" : "head"};
    facts[2] = (struct mp_store_fact){MP_FACT_PAIRS_SAME, turn->pairs->are_same ? "yes" : "no"};
    facts[3] = (struct mp_store_fact){MP_FACT_PAIRS_SLICE, turn->pairs->slice};
    *command = turn->command.count > 0 ? mp_command_text(&turn->command) : NULL;
    return (struct mp_ended_job){.suite = turn->runner->suite,
                                 .index = turn->index,
                                 .round = turn->round,
                                 .suite_run = turn->suite_run,
                                 .started_at = turn->started_at,
                                 .command = *command,
                                 .job_text = turn->job_text,
                                 .spools = turn->spools,
                                 .slices = turn->is_sliced ? turn->slices : NULL,
                                 .keep_spools = turn->runner->keep_spools,
                                 .result = result,
                                 .fact = facts,
                                 .facts = !turn->runner->against ? 0
                                          : turn->is_sliced      ? PAIR_FACTS
                                                                 : PAIR_FACTS - 1};
}

/* result: NULL before its end. */
static int write_note(const struct turn *turn, const struct mp_launch_result *result,
                      struct mp_error *error) {
    struct mp_store_fact facts[PAIR_FACTS];
    MP_AUTO(text) char *command = NULL;
    const struct mp_ended_job job = describe(turn, result, facts, &command);
    return mp_suite_note(&job, turn->note, error);
}

/* Everything that a job needs to be started. */
static int make_ready(struct turn *turn, struct mp_error *error) {
    mp_suite_format_utc("%Y-%m-%dT%H:%M:%SZ", turn->started_at, sizeof turn->started_at);
    MP_TRY(prepare(turn, error));
    if (!is_predicted(turn) && !refusal_of(turn))
        MP_TRY(create_command(turn, error));
    MP_TRY(write_note(turn, NULL, error));
    if (turn->command.count == 0)
        return MP_OK;
    MP_TRY(mp_hosts_spread(turn->runner->hosts, turn->folder, error));
    turn->is_spread = true;
    return MP_OK;
}

static void end_with(struct mp_launch_result *result, enum mp_launch_end end, const char *reason) {
    *result = (struct mp_launch_result){.end = end};
    snprintf(result->reason, sizeof result->reason, "%s", reason);
}

/* Instead of carrying it out: what is kept of it is what was asked for, and why not. */
static void refuse(struct turn *turn, struct mp_launch_result *result) {
    struct mp_error error = {0};
    if (make_ready(turn, &error))
        end_with(result, MP_LAUNCH_FAILED, error.text);
    else
        end_with(result, MP_LAUNCH_REFUSED, refusal_of(turn));
}

/* Carries the job out; what goes wrong becomes the result's reason. */
static void carry_out(struct turn *turn, struct mp_launch_result *result) {
    struct mp_error error = {0};
    mp_estimate_begin_job(turn->estimate);
    int code = make_ready(turn, &error);
    if (!code)
        code = is_predicted(turn) ? predict(turn, result, &error) : launch(turn, result, &error);
    mp_estimate_end_job(turn->estimate);
    if (code)
        end_with(result, MP_LAUNCH_FAILED, error.text);
}

/* Both sides run at once.  The clocks of bounds stand still at times, so that slices would not fit
 * what they record; and a GPU goes on with what is queued while its process is stopped. */
static bool is_to_be_sliced(const struct turn *turn) {
    return turn->runner->slice > 0 && turn->file->job.device == MP_DEVICE_CPU &&
           !(turn->file->system->capabilities & MP_SYSTEM_UNATTAINABLE);
}

/* Carries both jobs of a pair out. */
static void carry_out_pair(struct turn turn[2], struct mp_launch_result result[2]) {
    struct mp_error error[2] = {{0}, {0}};
    mp_estimate_begin_job(turn->estimate);
    for (int i = 0; i < 2; i++) {
        turn[i].sibling = &turn[1 - i];
        turn[i].is_sliced = is_to_be_sliced(turn);
        make_ready(&turn[i], &error[i]);
    }
    if (error[0].code || error[1].code) { /* neither says anything without the other */
        for (int i = 0; i < 2; i++)
            end_with(&result[i], MP_LAUNCH_FAILED, error[error[i].code ? i : !i].text);
    } else {
        const struct mp_launch job[] = {launch_of(&turn[0]), launch_of(&turn[1])};
        double slice = turn->is_sliced ? turn->runner->slice : 0;
        turn[0].is_sliced = turn[1].is_sliced = mp_launch_in_slices(job, slice, result);
    }
    mp_estimate_end_job(turn->estimate);
}

/* Puts the run with all its spools into the database, then removes the spools, the note, and the
 * loads that can be made again. */
static int ingest(struct turn *turn, const struct mp_launch_result *result,
                  struct mp_error *error) {
    struct mp_store_fact facts[PAIR_FACTS];
    MP_AUTO(text) char *command = NULL;
    const struct mp_ended_job ended = describe(turn, result, facts, &command);
    if (turn->is_spread)
        MP_TRY(mp_hosts_gather(turn->runner->hosts, turn->spools, error));
    MP_TRY(mp_suite_keep(turn->runner->store, &ended, error));
    if (!ended.keep_spools) {
        unlink(turn->loads);
        unlink(turn->note);
        unlink(turn->slices);
    }
    return MP_OK;
}

static void say_end(const struct turn *turn, const struct mp_launch_result *result) {
    const struct mp_suite *suite = turn->runner->suite;
    const struct mp_launch_progress *progress = &result->progress;
    char round[64] = "", loss[32] = "";
    bool is_complete = result->end == MP_LAUNCH_COMPLETE;
    bool has_log = !is_predicted(turn) && result->end != MP_LAUNCH_REFUSED;
    if (turn->runner->against)
        snprintf(round, sizeof round, ", pair %d of %d, %s", turn->round + 1, suite->repeat,
                 turn->is_base ? "base" : "head");
    else if (suite->repeat > 1 && result->end != MP_LAUNCH_REFUSED)
        snprintf(round, sizeof round, ", round %d of %d", turn->round + 1, suite->repeat);
    char what[sizeof result->reason + MP_PATH_SIZE + 32];
    if (!is_predicted(turn))
        snprintf(loss, sizeof loss, ", loss %.4f", progress->loss);
    if (is_complete)
        snprintf(what, sizeof what, "%lld iteration%s%s in %.1f s%s",
                 (long long)progress->iteration, progress->iteration == 1 ? "" : "s",
                 is_predicted(turn) ? " predicted" : "", result->seconds, loss);
    else
        snprintf(what, sizeof what, "%s: %s%s%s%s", mp_launch_end_name(result->end), result->reason,
                 has_log ? " (log: " : "", has_log ? turn->log : "", has_log ? ")" : "");
    mp_progress_say(turn->runner->progress, is_complete ? MP_TONE_GOOD : MP_TONE_BAD,
                    "[%d/%d] %s%s: %s", turn->number, count_turns(turn->runner),
                    turn->file->job.name, round, what);
}

/* The job could not be put into the database: notes how it ended, if there is room, and says how to
 * put it there later. */
static void leave(const struct turn *turn, const struct mp_launch_result *result,
                  const char *reason) {
    struct mp_error unused = {0};
    MP_AUTO(text)
    char *command = mp_suite_killed_command(turn->folder, mp_store_path(turn->runner->store),
                                            turn->runner->hosts);
    write_note(turn, result, &unused);
    mp_progress_say(turn->runner->progress, MP_TONE_BAD, "%s: not in the database: %s%s%s",
                    turn->file->job.name, reason,
                    access(turn->note, F_OK) ? "" : "; nothing is lost, this adds it: ",
                    access(turn->note, F_OK) || !command ? "" : command);
}

/* A program that trained nothing, as one that hides how another ended, is no success.  Recordings
 * on other hosts' disks are not here yet. */
static void check_recorded(const struct turn *turn, struct mp_launch_result *result) {
    char path[MP_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/rank-0000.spool", turn->spools);
    if (result->end == MP_LAUNCH_COMPLETE && turn->file->job.record && !turn->runner->hosts &&
        access(path, F_OK))
        end_with(result, MP_LAUNCH_FAILED, "it ended well, and rank 0 has recorded nothing");
}

/* The job is over: says so, keeps and counts it, and frees what it had. */
static void settle(struct turn *turn, struct mp_launch_result *result,
                   struct mp_runner_result *total) {
    struct mp_error error = {0};
    check_recorded(turn, result);
    say_end(turn, result);
    if (ingest(turn, result, &error)) {
        total->lost++;
        leave(turn, result, error.text);
    }
    int *const counts[] = {[MP_LAUNCH_COMPLETE] = &total->complete,
                           [MP_LAUNCH_FAILED] = &total->failed,
                           [MP_LAUNCH_INTERRUPTED] = &total->interrupted,
                           [MP_LAUNCH_TIMEOUT] = &total->failed,
                           [MP_LAUNCH_REFUSED] = &total->refused};
    ++*counts[result->end];
    mp_command_destroy(&turn->command);
    free(turn->job_text);
    if (turn->held >= 0)
        close(turn->held);
}

/* One job, or the pair of its sides. */
static void run_turns(struct turn turn[], int sides, struct mp_runner_result *total) {
    struct mp_launch_result result[2] = {{0}, {0}};
    if (!refusal_of(turn) && sides > 1)
        carry_out_pair(turn, result);
    for (int i = 0; i < sides; i++) {
        if (refusal_of(turn))
            refuse(&turn[i], &result[i]);
        else if (sides == 1)
            carry_out(turn, result);
        settle(&turn[i], &result[i], total);
    }
}

/* Open MPI keeps sockets and shared memory of a run in a temporary folder, and where it can't its
 * last words are about anything but that. */
static int check_temporary_folder(struct mp_error *error) {
    static const char *const variables[] = {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"};
    const char *folder = NULL;
    for (int i = 0; i < 4 && !folder; i++)
        folder = getenv(variables[i]);
    folder = folder ? folder : "/tmp";
    if (!access(folder, W_OK) || errno == ENOENT) /* mpirun makes it */
        return MP_OK;
    return mp_fail(error, MP_EIO,
                   "mpirun keeps its files in %s, which can't be written: %s; TMPDIR=FOLDER in the "
                   "environment names another folder",
                   folder, strerror(errno));
}

/* A file that can be started. */
static int check_program(const char *path, struct mp_error *error) {
    struct stat status;
    bool is_program = !stat(path, &status) && !access(path, X_OK);
    if (is_program && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        is_program = false;
    }
    return is_program ? MP_OK
                      : mp_fail(error, MP_ENOTFOUND, "can't run %s: %s", path, strerror(errno));
}

/* The launcher of a measured job; word[0] of its command is found in the path. */
static int check_launcher(const struct mp_runner *runner, const struct mp_job *job,
                          struct mp_error *error) {
    static const char *const no_arguments[] = {NULL};
    MP_AUTO(command) struct mp_command command = {0};
    char path[MP_PATH_SIZE];
    MP_TRY(mp_command_create(runner->launcher, job->ranks, runner->trainer, no_arguments, &command,
                             error));
    bool is_mpirun = !strcmp(command.word[0], "mpirun");
    if (!mp_shell_search(command.word[0], path, sizeof path))
        return mp_fail(error, MP_ENOTFOUND,
                       "%s is not installed; job %.100s with %d ranks needs it%s", command.word[0],
                       job->name, job->ranks,
                       is_mpirun ? " (Debian and Ubuntu: package openmpi-bin)" : "");
    return is_mpirun ? check_temporary_folder(error) : MP_OK;
}

/* Everything that no measured job can do without, before the first one starts. */
static int check_programs(const struct mp_runner *runner, struct mp_error *error) {
    for (int i = 0; i < runner->suite->count; i++) {
        if (mp_suite_is_predicted(runner->suite, i) || runner->suite->refusal[i])
            continue;
        MP_TRY(check_program(runner->trainer, error));
        MP_TRY(check_launcher(runner, &runner->suite->job[i].file.job, error));
    }
    return MP_OK;
}

/* Whether two files hold the same; one that cannot be read is like no other. */
static bool are_same_files(const char *path, const char *other) {
    MP_AUTO(file) FILE *file = fopen(path, "rbe");
    MP_AUTO(file) FILE *beside = fopen(other, "rbe");
    bool are_same = file && beside;
    while (are_same) {
        char part[2][4096];
        size_t size = fread(part[0], 1, sizeof part[0], file);
        are_same = size == fread(part[1], 1, sizeof part[1], beside) &&
                   memcmp(part[0], part[1], size) == 0;
        if (size < sizeof part[0])
            break;
    }
    return are_same;
}

/* Base has a trainer, and nothing is predicted: that would be the same on both sides. */
static int check_pairs(const struct mp_runner *runner, struct mp_error *error) {
    for (int i = 0; i < runner->suite->count; i++)
        if (mp_suite_is_predicted(runner->suite, i))
            return mp_fail(error, MP_EINVAL,
                           "job %.100s is predicted, by this program: pairs measure trainers; to "
                           "compare predictions, run the suite with both builds and compare the "
                           "databases",
                           runner->suite->job[i].file.job.name);
    return check_program(runner->against, error);
}

int mp_runner_check(const struct mp_runner *runner, struct mp_error *error) {
    MP_TRY(check_programs(runner, error));
    if (runner->against)
        MP_TRY(check_pairs(runner, error));
    MP_TRY(mp_path_create_folder(runner->work, error));
    return access(runner->work, W_OK | X_OK)
               ? mp_fail_errno(error, "can't write to the folder %s", runner->work)
               : MP_OK;
}

static void name_runs(const struct mp_runner *runner, struct pairs *pairs,
                      struct mp_runner_result *result) {
    char name[48], time_text[32];
    copy_plain(runner->suite->name, name, sizeof name);
    mp_suite_format_utc("%Y%m%dT%H%M%SZ", time_text, sizeof time_text);
    snprintf(pairs->id, sizeof pairs->id, "%s-%s-%d", name, time_text, (int)getpid());
    snprintf(result->suite_run, sizeof result->suite_run, "%.120s%s", pairs->id,
             runner->against ? "-head" : "");
    if (runner->against)
        snprintf(result->base_run, sizeof result->base_run, "%.120s-base", pairs->id);
}

/* The folders of all jobs, here and where jobs are copied to. */
static int create_folders(const struct mp_runner *runner, const struct mp_runner_result *result,
                          struct mp_error *error) {
    const char *const runs[] = {result->suite_run, result->base_run};
    char path[MP_PATH_SIZE];
    for (int i = 0; i < 2; i++) {
        if (!*runs[i] || !runner->hosts)
            continue;
        MP_TRY(mp_path_join(path, runner->work, runs[i], error));
        MP_TRY(mp_path_create_folder(path, error));
        MP_TRY(mp_hosts_spread(runner->hosts, path, error));
    }
    return MP_OK;
}

/* The job of a side of a pair, or for want of pairs the only side, in this round. */
static struct turn turn_at(const struct mp_runner *runner, const struct pairs *pairs,
                           const struct mp_runner_result *result, int round, int index, int side) {
    bool is_base = runner->against && side == round % 2; /* base and head in turns first */
    struct mp_predict_job *job = &runner->suite->job[index];
    return (struct turn){.runner = runner,
                         .work = job,
                         .file = &job->file,
                         .round = round,
                         .index = index,
                         .pairs = pairs,
                         .is_base = is_base,
                         .held = -1,
                         .suite_run = is_base ? result->base_run : result->suite_run};
}

/* One job of a round, or the pair of its sides; `*number` goes on. */
static void run_job(const struct mp_runner *runner, const struct pairs *pairs,
                    struct mp_estimate *estimate, int round, int index, int *number,
                    struct mp_runner_result *result) {
    int sides = runner->against ? 2 : 1;
    struct turn turn[2];
    if (runner->signals && *runner->signals) {
        result->left_out += sides;
        return;
    }
    for (int i = 0; i < sides; i++) {
        turn[i] = turn_at(runner, pairs, result, round, index, i);
        turn[i].number = ++*number;
        turn[i].estimate = estimate;
    }
    run_turns(turn, sides, result);
}

static void run_all(const struct mp_runner *runner, const struct pairs *pairs,
                    struct mp_estimate *estimate, struct mp_runner_result *result) {
    int jobs = runner->suite->count, number = 0;
    for (int round = 0; round < runner->suite->repeat; round++)
        for (int i = 0; i < jobs; i++)
            if (has_turn(runner, i, round))
                run_job(runner, pairs, estimate, round, i, &number, result);
}

int mp_runner_run(const struct mp_runner *runner, struct mp_runner_result *result,
                  struct mp_error *error) {
    MP_AUTO(estimate) struct mp_estimate *estimate = NULL;
    MP_AUTO(known_bounds) struct mp_known_bounds *bounds = NULL;
    struct pairs pairs = {.are_same = false};
    memset(result, 0, sizeof *result);
    name_runs(runner, &pairs, result);
    MP_TRY(mp_runner_check(runner, error));
    if (runner->against) {
        pairs.are_same = are_same_files(runner->trainer, runner->against);
        snprintf(pairs.slice, sizeof pairs.slice, "%g", runner->slice);
    }
    MP_TRY(create_folders(runner, result, error));
    MP_TRY(mp_known_bounds_create(&bounds, error));
    MP_TRY(mp_estimate_create(mp_suite_possible(runner->suite), runner->suite->repeat, &estimate,
                              error));
    pairs.bounds = bounds;
    run_all(runner, &pairs, estimate, result);
    mp_progress_end(runner->progress);
    return MP_OK;
}
