#include "harness/cli/cli.h"

#include <errno.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/suite/paths.h"
#include "harness/suite/seconds.h"
#include "harness/suite/suite.h"
#include "reference/base/characters.h"
#include "reference/base/whole_file.h"
#include "reference/device/device.h"
#include "reference/machine/machine.h"

/* ---- arguments ---- */

enum { OPTIONS_LIMIT = 128 };

/* The option of a job or suite that "--NAME" may mean: exactly so, or the nearest.  NULL: none. */
static const char *find_setting(const char *name, bool exactly) {
    const char *known[OPTIONS_LIMIT + 1];
    int count = 0;
    if (strncmp(name, "--", 2) != 0)
        return NULL;
    for (const struct mp_option *option = mp_job_options; option->name; option++)
        if (count < OPTIONS_LIMIT && strcmp(option->name, "name") != 0) /* jobs keep theirs */
            known[count++] = option->name;
    for (const struct mp_option *option = mp_suite_options; option->name; option++)
        if (count < OPTIONS_LIMIT && mp_option_kind(option) != MP_OPTION_TEXT)
            known[count++] = option->name;
    known[count] = NULL;
    for (int i = 0; exactly && i < count; i++)
        if (!strcmp(known[i], name + 2))
            return known[i];
    return exactly ? NULL : mp_nearest_word(name + 2, known);
}

/* MP_EINVAL: there is no such format, or both flags. */
static int read_format(struct cli_format *format, struct mp_error *error) {
    static const char *const names[] = {"text", "json", "csv", "markdown", "latex", NULL};
    const char *name = format->name;
    format->kind = format->json ? MP_REPORT_JSON : MP_REPORT_TEXT;
    for (int i = 0; name && names[i]; i++)
        if (!strcmp(name, names[i])) {
            format->kind = (enum mp_report_format)i;
            return format->json && format->kind != MP_REPORT_JSON
                       ? mp_fail(error, MP_EINVAL, "--format %s does not go with --json", name)
                       : MP_OK;
        }
    return name ? mp_fail(error, MP_EINVAL, "--format %.80s: should be " CLI_FORMAT_KINDS "%s",
                          name, mp_meant(name, names).text)
                : MP_OK;
}

int cli_parse(const struct cli_usage *usage, int argc, char *argv[], struct cli_words *words,
              struct mp_error *error) {
    MP_TRY(cli_parse_arguments(usage, find_setting, argc, argv, words, error));
    for (const struct cli_flag *flag = usage->flags; flag->name; flag++)
        if (!strcmp(flag->name, "--format"))
            MP_TRY(read_format(flag->target, error));
    return MP_OK;
}

int cli_run_number(const char *text, int64_t *run_id, struct mp_error *error) {
    return mp_whole_number(text, 1, INT64_MAX, run_id)
               ? MP_OK
               : mp_fail(error, MP_EINVAL,
                         "--run %.100s: should be the number of a run; moeperf report --runs "
                         "lists them",
                         text);
}

/* ---- printing ---- */

FILE *cli_beside(const char *path) {
    struct stat file, output;
    bool is_output = !stat(path, &file) && !fstat(STDOUT_FILENO, &output) &&
                     file.st_dev == output.st_dev && file.st_ino == output.st_ino;
    return is_output ? stderr : stdout;
}

int cli_print_json(json_t *value, struct mp_error *error) {
    if (!value)
        return mp_fail(error, MP_ENOMEM, "no memory for the JSON text");
    int failed = json_dumpf(value, stdout, JSON_INDENT(2));
    json_decref(value);
    putchar('\n');
    return failed ? mp_fail(error, MP_EIO, "can't write to standard output: %s", strerror(errno))
                  : MP_OK;
}

void cli_draw_share(struct mp_progress *progress, const char *name, int done, int all,
                    double started) {
    const double passed = mp_seconds_now() - started;
    const struct mp_progress_state state = {.job = done < all ? done + 1 : done,
                                            .jobs = all,
                                            .name = name,
                                            .share = (double)done / all,
                                            .seconds_left =
                                                done ? passed / done * (all - done) : -1};
    mp_progress_draw(progress, &state);
}

void cli_print_clean(FILE *stream, const char *text, size_t length) {
    char *copy = strndup(text, length);
    fputs(copy ? mp_clean_text(copy, length + 1, copy) : "", stream);
    free(copy);
}

/* ---- databases: where one to read is not there, those that are get named ---- */

static bool is_database(const char *path) {
    struct mp_store *store = NULL;
    bool opened = mp_store_open_read_only(path, &store, NULL) == MP_OK;
    mp_store_close(store);
    return opened;
}

/* Adds to `text` those that a pattern finds. */
static void add_found(const char *pattern, char *text, size_t size) {
    glob_t found;
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (strlen(text) + strlen(found.gl_pathv[i]) + 16 < size && is_database(found.gl_pathv[i]))
            mp_text_add(text, size, ", ", "%s", found.gl_pathv[i]);
    globfree(&found);
}

int cli_open_database(const char *path, struct mp_store **store, struct mp_error *error) {
    /* Where commands put one unless told otherwise, where ci/quickstart does, where people do. */
    static const char *const patterns[] = {CLI_DATABASE, "out/*/*.db", "*.db"};
    struct mp_error first = {0};
    char others[512] = "";
    int code = mp_store_open_read_only(path, store, &first);
    for (size_t i = 0; code == MP_ENOTFOUND && i < MP_LENGTH(patterns); i++)
        add_found(patterns[i], others, sizeof others);
    return code ? mp_fail(error, code, "%s%s%s", first.text, *others ? "; there is: " : "", others)
                : MP_OK;
}

int cli_create_database(const char *path, struct mp_store **store, struct mp_error *error) {
    if (*path && path[strlen(path) - 1] == '/')
        return mp_fail(error, MP_EINVAL, "%s: is a folder; a database is a file, as %sresults.db",
                       path, path);
    MP_TRY(mp_path_create_parent(path, error));
    MP_TRY(mp_store_open(path, store, error));
    cli_wait_for_lock(*store);
    return MP_OK;
}

/* ---- the machine ---- */

void cli_machine_read(struct cli_machine *machine) {
    cpu_set_t cores;
    mp_machine_processor(machine->processor, sizeof machine->processor);
    machine->cores = sched_getaffinity(0, sizeof cores, &cores) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                                : CPU_COUNT(&cores);
    machine->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

int cli_machine_compute(char *text, size_t size, struct mp_error *error) {
    const struct mp_device_limits limits = {
        .attention = {1, 8, 1, 8}, .experts = 1, .width = 8, .tokens = 8};
    struct mp_device *device = NULL;
    MP_TRY(mp_device_cpu_create(1, &limits, &device, error));
    mp_device_describe(device, text, size);
    mp_device_destroy(device);
    return MP_OK;
}

/* ---- signals, and waiting ---- */

static volatile sig_atomic_t signals;

struct waiting {
    const struct mp_store *store;
    sig_atomic_t signals; /* that had come before */
    bool is_said;
};

static void count_signal(int number) {
    if (number != SIGHUP || signals == 0)
        signals = signals + 1;
}

static bool is_ignored(int number) {
    struct sigaction now;
    return !sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN;
}

const volatile sig_atomic_t *cli_count_signals(void) {
    struct sigaction action = {.sa_handler = count_signal}; /* no SA_RESTART: poll must return */
    sigemptyset(&action.sa_mask);
    if (!is_ignored(SIGHUP))
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &signals;
}

static bool waits(void *context, double seconds) {
    static const double said_after = 0.3, most = 60;
    struct waiting *waiting = context;
    if (seconds == 0)
        *waiting = (struct waiting){.store = waiting->store, .signals = signals};
    if (seconds >= said_after && !waiting->is_said)
        fprintf(stderr, "moeperf: %s: another program has it locked; waiting up to %g s\n",
                mp_store_path(waiting->store), most);
    waiting->is_said = seconds >= said_after;
    return seconds < most && signals == waiting->signals;
}

void cli_wait_for_lock(struct mp_store *store) {
    static struct waiting waiting;
    waiting.store = store;
    mp_store_set_patience(store, waits, &waiting);
}

/* Its action is the usual one again (SA_RESETHAND), which ends the program. */
static void end(int number) {
    mp_whole_files_abandon();
    raise(number);
}

void cli_leave_nothing_at_signals(void) {
    static const int ends[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = end, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < MP_LENGTH(ends); i++)
        if (!is_ignored(ends[i]))
            sigaction(ends[i], &action, NULL);
}
