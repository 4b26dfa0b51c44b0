/* moeperf record: runs an annotated program and keeps what it says of itself. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/cli/recording_flags.h"
#include "harness/record/devices.h"
#include "harness/record/parts.h"
#include "harness/record/run.h"
#include "harness/suite/command.h"
#include "harness/suite/files.h"
#include "harness/suite/paths.h"
#include "profiler/nvtx/emit.h"
#include "reference/base/shell.h"

static struct {
    const char *database, *keep, *part, *hosts, *copy;
    struct cli_recording_flags recording;
    struct cli_words from;
} given = {.database = CLI_DATABASE};

static const struct cli_flag known_flags[] = {
    {"-o", CLI_VALUE, &given.database, "FILE", "database to add the run to (" CLI_DATABASE ")"},
    {"--rules", CLI_REPEATED, &given.recording.rules, "NAME", CLI_RULES_HELP},
    {"--suggest", CLI_VALUE, &given.recording.suggest, "FILE", CLI_SUGGEST_HELP},
    {"--ranks-from", CLI_VALUE, &given.recording.run.ranks_from, "VARIABLE",
     "environment variable with a process's rank; without it the\n"
     "usual ones (Open MPI's, PMI's, RANK, SLURM_PROCID), else ranks\n"
     "are counted in the order in which processes began"},
    {"--system", CLI_VALUE, &given.recording.run.system, "NAME",
     "what reports call it (the program's name)"},
    {"--workload", CLI_VALUE, &given.recording.run.workload, "NAME",
     "what it was given to do (recorded)"},
    {"--loads", CLI_VALUE, &given.recording.run.loads.path, "PATH",
     CLI_LOADS_HELP "; without it, what moeperf_experts.py\ncounted (moeperf show)"},
    {"--loads-as", CLI_VALUE, &given.recording.run.loads.kind, "KIND", CLI_LOADS_AS_HELP},
    {"--experts", CLI_COUNT, CLI_NUMBER(&given.recording.run.loads.experts, 1, INT32_MAX), "N",
     "experts of a layer, for kinds that don't say"},
    {"--job", CLI_VALUE, &given.recording.job, "FILE", CLI_JOB_HELP},
    {"--keep", CLI_VALUE, &given.keep, "FOLDER",
     "keeps the spools in this folder, which must not exist"},
    {"--part", CLI_VALUE, &given.part, "FOLDER",
     "this is one host of several: leaves its spools in\n"
     "FOLDER/HOST-PID, and adds no run; --from does, of all of them"},
    {"--from", CLI_REPEATED, &given.from, "FOLDER...",
     "runs nothing: adds the spools that an earlier moeperf record\n"
     "left there, because it was killed or with --keep; doing so\n"
     "again adds nothing.  Several, or one with folders of --part in\n"
     "it, become one run, hosts' clocks beside one another"},
    {"--hosts", CLI_VALUE, &given.hosts, "FILE",
     "with --from and --copy: the hosts that have parts, one a line"},
    {"--copy", CLI_VALUE, &given.copy, "TEMPLATE", CLI_COPY_HELP},
    {"--some-ranks", CLI_SWITCH, &given.recording.run.some_ranks, NULL,
     "with --from: not all ranks need to be there"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf record [options] -- COMMAND [arguments]\n"
    "       moeperf record [options] --from FOLDER...",
    "Runs a program with moeperf's NVTX collector loaded and adds one run with all of its\n"
    "processes to a database: every range as it was (v_nvtx), and spans for the ranges that\n"
    "rules map to phases, so that reports work.  Where the collectors for CUPTI and NCCL are,\n"
    "GPU work comes with it (v_gpu, v_collective), also of a program without ranges.  Signals\n"
    "go to the program, its exit status comes back; 2 where that is 0 and nothing was\n"
    "recorded, neither a range nor GPU work.",
    known_flags,
    0,
    CLI_WORDS_LIMIT,
    "  moeperf record -o run.db -- python train.py\n"
    "  moeperf record -o run.db --rules my.yaml --ranks-from LOCAL_RANK -- torchrun t.py\n"
    "  srun --ntasks-per-node=1 moeperf record --part parts -- torchrun ... train.py\n"
    "  moeperf record -o run.db --rules my.yaml --from parts\n"};

/* `words` are more folders of --from. */
static int check(const struct cli_words *words, bool has_command, struct mp_error *error) {
    const bool is_from = given.from.count > 0;
    if (is_from && has_command)
        return mp_fail(error, MP_EINVAL, "--from takes what was recorded, and runs no command");
    if (!is_from && words->count > 0)
        return mp_fail(error, MP_EINVAL,
                       "\"%.200s\": a command stands behind --, as in moeperf record -- python "
                       "train.py, and folders behind --from",
                       words->word[0]);
    if (given.from.count + words->count > CLI_WORDS_LIMIT)
        return mp_fail(error, MP_ELIMIT,
                       "--from takes at most %d folders; folders of folders hold more",
                       CLI_WORDS_LIMIT);
    for (int i = 0; i < words->count; i++)
        given.from.word[given.from.count++] = words->word[i];
    if (!is_from && !has_command)
        return mp_fail(error, MP_EINVAL,
                       "no command: it stands behind --, as in moeperf record -- python train.py");
    if (!is_from && (given.recording.run.some_ranks || given.hosts || given.copy))
        return mp_fail(error, MP_EINVAL, "--some-ranks, --hosts and --copy take --from FOLDER");
    if (given.hosts && !given.copy)
        return mp_fail(error, MP_EINVAL, "--hosts takes --copy TEMPLATE: how parts come to here");
    const struct cli_recording_flags *recording = &given.recording;
    if (given.part && (is_from || given.keep || recording->suggest || recording->rules.count > 0 ||
                       recording->run.loads.path || recording->job))
        return mp_fail(error, MP_EINVAL,
                       "--part only leaves spools: --rules, --loads, --job and --suggest go with "
                       "--from, when all parts are there");
    return MP_OK;
}

/* ---- the program ---- */

enum { CANT_RUN = 126, NOT_FOUND = 127 }; /* exit statuses, as shells have them */

static volatile sig_atomic_t child;

/* What the terminal sends goes to the program anyway. */
static void pass_on(int signal, siginfo_t *origin, void *context) {
    int number = errno;
    (void)context;
    if (child > 0 && origin->si_code != SI_KERNEL)
        kill(child, signal);
    errno = number;
}

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED = MP_LENGTH(passed) };

/* Says why there is no program; its exit status. */
static int say_no_program(const char *name) {
    const bool is_there = errno != ENOENT;
    fprintf(stderr, "moeperf record: %s: %s\n", name, strerror(errno));
    return is_there ? CANT_RUN : NOT_FOUND;
}

static void start_program(char *command[], const struct mp_record_run *run) {
    const char *others = getenv("NVTX_INJECTION64_PATH");
    if (others && *others)
        setenv("MOEPERF_NVTX_NEXT", others, 1);
    setenv("NVTX_INJECTION64_PATH", run->collector, 1);
    setenv("MOEPERF_NVTX_SPOOLS", run->spools, 1);
    if (run->ranks_from)
        setenv("MOEPERF_NVTX_RANK", run->ranks_from, 1);
    mp_devices_offer(run->spools);
    execvp(command[0], command);
    _exit(say_no_program(command[0]));
}

/* Runs the command to its end; its exit status as a shell has it. */
static int run_program(char *command[], const struct mp_record_run *run, int *status,
                       struct mp_error *error) {
    struct sigaction before[PASSED],
        action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    int ended = 0;
    sigemptyset(&action.sa_mask);
    sigset_t held, mask;
    sigemptyset(&held);
    for (int i = 0; i < PASSED; i++)
        sigaddset(&held, passed[i]);
    sigprocmask(SIG_BLOCK, &held, &mask); /* until we know whom to pass them to */
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &mask, NULL);
        start_program(command, run);
    }
    child = pid;
    for (int i = 0; i < PASSED; i++)
        sigaction(passed[i], &action, &before[i]);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (pid < 0)
        return mp_fail(error, MP_EIO, "can't start %s: %s", command[0], strerror(errno));
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
        continue;
    child = 0;
    for (int i = 0; i < PASSED; i++)
        sigaction(passed[i], &before[i], NULL);
    *status = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    return MP_OK;
}

/* ---- folders ---- */

static int find_collector(char path[MP_PATH_SIZE], struct mp_error *error) {
    if (mp_nvtx_headers())
        return mp_path_library("libmoeperf-nvtx.so", path, error);
    return mp_fail(
        error, MP_ENOTFOUND,
        "this moeperf was built without NVTX's headers, so it has no collector: name the "
        "folder that has nvtx3/nvToolsExtPayload.h (of CUDA's toolkit, or of NVIDIA/NVTX) "
        "to cmake, -DNVTX_INCLUDE_DIR=FOLDER, and build again");
}

static int make_folder(char folder[MP_PATH_SIZE], struct mp_error *error) {
    char absolute[MP_PATH_SIZE] = "", host[64] = "";
    const char *name = given.part ? given.part : given.keep ? given.keep : given.database;
    gethostname(host, sizeof host - 1);
    if (*name != '/' && (!getcwd(absolute, sizeof absolute) ||
                         strlen(absolute) + strlen(name) + 32 > sizeof absolute))
        return mp_fail(error, MP_EIO, "%s: can't find this folder's path", name);
    if (*absolute)
        strcat(absolute, "/");
    char own[96] = "";
    if (given.part)
        snprintf(own, sizeof own, "/%s-%d", host, (int)getpid());
    else if (!given.keep)
        snprintf(own, sizeof own, ".spools-%d", (int)getpid());
    int length = snprintf(folder, MP_PATH_SIZE, "%s%s%s", absolute, name, own);
    if (length >= MP_PATH_SIZE)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", name);
    if (!access(folder, F_OK))
        return mp_fail(error, MP_EINVAL, "%s: is there already; spools need a new folder", folder);
    return mp_path_create_folder(folder, error);
}

/* How to go on with these spools.  `program`: what was run, NULL: nothing was. */
static void plan_continuing(const char *program, const char *spools) {
    struct cli_recording_flags *recording = &given.recording;
    recording->resume = strdup("moeperf record");
    cli_add_word(recording, "-o", given.database);
    cli_add_recording_flags(recording, program ? mp_file_name(program) : NULL);
    cli_add_word(recording, "--from", spools);
    for (int i = 1; i < given.from.count; i++)
        cli_add_word(recording, "", given.from.word[i]);
}

/* One that was not there before and got no run is not left, unless others have it open. */
static void close_database(struct mp_store *store, bool is_new) {
    char log[MP_PATH_SIZE];
    int64_t runs = 1;
    if (store && is_new)
        mp_store_numbers(store, "SELECT count(*) FROM run", NULL, 0, &runs, 1, NULL);
    mp_store_close(store);
    snprintf(log, sizeof log, "%s-wal", given.database);
    if (runs == 0 && access(log, F_OK) != 0)
        unlink(given.database);
}

static int record_command(char *command[], struct mp_record_run *run, int *status,
                          struct mp_error *error) {
    struct mp_store *store = NULL;
    const bool is_new = access(given.database, F_OK) != 0;
    /* Before the program has run for hours. */
    int code = cli_create_database(given.database, &store, error);
    if (code)
        rmdir(run->spools); /* which nothing was put into */
    else
        code = run_program(command, run, status, error);
    run->status = *status;
    if (!code)
        code = mp_record_keep(store, run, stderr, error);
    close_database(store, is_new);
    /* What the program said matters more; where none ran, nothing is to be said of its ranges. */
    if (code == MP_ENOTFOUND && *status != 0) {
        if (*status != CANT_RUN && *status != NOT_FOUND)
            fprintf(stderr, "moeperf record: %s\n", error->text);
        return MP_OK;
    }
    return code;
}

/* One host of several. */
static int record_part(char *command[], const struct mp_record_run *run, int *status,
                       struct mp_error *error) {
    int code = run_program(command, run, status, error);
    if (!rmdir(run->spools)) /* it is empty */
        fprintf(stderr, "moeperf record: nothing was recorded here\n");
    else if (!code)
        fprintf(stderr,
                "moeperf record: a part of a run is in %s; moeperf record -o FILE --from FOLDER... "
                "adds all of them\n",
                run->spools);
    return code;
}

/* Several folders, or one with folders in it, by links to their spools. */
static int add_parts(struct mp_store *store, struct mp_record_run run, struct mp_error *error) {
    char links[MP_PATH_SIZE];
    MP_TRY(mp_parts_create_folder(given.database, "parts", links, error));
    int code = mp_parts_link(given.from.word, given.from.count, links, error);
    run.spools = links;
    run.is_merged = true;
    if (!code)
        code = mp_record_keep(store, &run, stderr, error);
    mp_parts_remove_folder(links);
    return code;
}

/* Spools of an earlier recording; they stay where they are. */
static int add_earlier(struct mp_record_run *run, struct mp_error *error) {
    struct mp_store *store = NULL;
    const bool is_new = access(given.database, F_OK) != 0;
    run->keep_spools = run->is_earlier = true;
    MP_AUTO(hosts) struct mp_hosts hosts = {0};
    MP_TRY(mp_hosts_read(given.hosts, given.copy, &hosts, error));
    for (int i = 0; i < given.from.count; i++)
        MP_TRY(mp_hosts_gather(&hosts, given.from.word[i], error));
    MP_TRY(cli_create_database(given.database, &store, error));
    int code = given.from.count == 1 && mp_parts_has_spool(run->spools)
                   ? mp_record_keep(store, run, stderr, error)
                   : add_parts(store, *run, error);
    close_database(store, is_new);
    return code;
}

static int record(const struct cli_call *call, struct mp_error *error) {
    struct cli_recording_flags *recording = &given.recording;
    char collector[MP_PATH_SIZE], folder[MP_PATH_SIZE];
    int status = 0;
    int code = check(call->words, call->rest, error);
    const bool is_earlier = given.from.count > 0;
    char *const from[] = {(char *)(uintptr_t)given.from.word[0], NULL};
    if (!code)
        code = cli_read_recording_flags(recording, given.database, call->systems, error);
    if (!code && !is_earlier)
        code = find_collector(collector, error);
    /* Before there is a file of a run that can't be. */
    if (!code && !is_earlier && !mp_shell_search(call->rest[0], folder, sizeof folder))
        status = say_no_program(call->rest[0]);
    else if (!code && !is_earlier)
        code = make_folder(folder, error);
    if (!code && !status) {
        struct mp_record_run run = recording->run;
        run.command = is_earlier ? from : call->rest;
        run.collector = is_earlier ? NULL : collector;
        run.spools = is_earlier ? from[0] : folder;
        run.keep_spools = given.keep;
        plan_continuing(is_earlier ? NULL : call->rest[0], run.spools);
        run.resume = recording->resume ? recording->resume : "moeperf record --from";
        code = is_earlier   ? add_earlier(&run, error)
               : given.part ? record_part(call->rest, &run, &status, error)
                            : record_command(call->rest, &run, &status, error);
    }
    cli_destroy_recording_flags(recording);
    return code ? code : status;
}

const struct cli_command cli_record = {"record", "runs any annotated program and keeps its ranges",
                                       record, .usage = &usage, .takes_rest = true};
