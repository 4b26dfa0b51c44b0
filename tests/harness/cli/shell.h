/* moeperf as people start it, in a folder with text to learn from. */
#pragma once

#include <jansson.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include "tests/harness/folder.h"
#include "tests/results/ends.h"

enum { SHELL_OUTPUT = 1 << 20 };

/* Runs a shell line with moeperf in the path; what it says on both streams is returned. */
static inline char *shell(const char *line, int status) {
    char command[4096];
    snprintf(command, sizeof command, "{ %s; } 2>&1", line);
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    char *output = calloc(1, SHELL_OUTPUT);
    fread(output, 1, SHELL_OUTPUT - 1, stream);
    int ended = pclose(stream);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != status)
        print_error("%s: exit status %d\n%s\n", line, WEXITSTATUS(ended), output);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), status);
    assert_null(strstr(output, "LeakSanitizer"));
    return output;
}

/* A shell line ends well, whatever it says. */
static inline void assert_runs(const char *line) {
    free(shell(line, 0));
}

static inline void assert_fits(const char *text) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strcspn(line, "\n") > 80)
            fail_msg("more than 80 columns: %.*s", (int)strcspn(line, "\n"), line);
}

/* Starts a program; what it says on both streams is left in the file "said". */
static inline pid_t start(const char *const words[]) {
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen("said", "w", stdout))
            dup2(STDOUT_FILENO, STDERR_FILENO);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return child;
}

/* A shell line ends with this status and says all of the texts; LACKS("text"): it must not; FITS:
 * no line of it has more than 80 columns. */
#define LACKS(text) ("\1" text)
#define FITS "\2"
#define assert_says(line, status, ...)                                                             \
    shell_says(line, status, (const char *const[]){__VA_ARGS__, NULL})

static inline void shell_says(const char *line, int status, const char *const texts[]) {
    char *output = shell(line, status);
    for (; *texts; texts++) {
        bool lacks = **texts == *LACKS("");
        if (!strcmp(*texts, FITS))
            assert_fits(output);
        else if (!strstr(output, *texts + lacks) != lacks)
            fail_msg("%s: says\n%s\n%s\n%s", line, output, lacks ? "with" : "instead of",
                     *texts + lacks);
    }
    free(output);
}

/* The last command among what was said that begins so.  Free it. */
static inline char *command_in(const char *said, const char *begin) {
    const char *at = NULL;
    for (const char *next = said; (next = strstr(next, begin)); next++)
        at = next + strspn(next, "\n ");
    if (!at)
        fail_msg("no \"%s\" in\n%s", begin, said);
    return strndup(at, strcspn(at, "\n"));
}

/* Each of these lines ends with status 2 and says so. */
struct refused_line {
    const char *line, *says;
};
#define assert_refused(rows)                                                                       \
    for (size_t i_ = 0; i_ < sizeof(rows) / sizeof *(rows); i_++)                                  \
    assert_says((rows)[i_].line, 2, (rows)[i_].says)

/* ---- JSON ---- */

/* The JSON text that a command prints. */
static inline json_t *json_of(const char *line, int status) {
    json_error_t error;
    char *output = shell(line, status);
    json_t *value = json_loads(output, 0, &error);
    if (!value)
        print_error("%s: %s\n%s\n", line, error.text, output);
    assert_non_null(value);
    free(output);
    return value;
}

/* Where a path leads in it, "systems/1/job"; NULL: nowhere. */
static inline json_t *member(const json_t *value, const char *path) {
    char key[64];
    while (value && *path && *path != '#') {
        int length = (int)strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", length, path);
        value = json_is_array(value) ? json_array_get(value, strtoul(key, NULL, 10))
                                     : json_object_get(value, key);
        path += length + (path[length] == '/');
    }
    return (json_t *)(uintptr_t)value;
}

/* NAN, and NULL, for what is none. */
static inline double number(const json_t *value, const char *path) {
    const json_t *found = member(value, path);
    return json_is_number(found) ? json_number_value(found) : NAN;
}
static inline const char *text(const json_t *value, const char *path) {
    return json_string_value(member(value, path));
}

/* Pairs of a path and what is there, as JSON has it but for quotes around it; behind "rows/#" how
 * many rows there are. */
#define assert_has(value, ...) shell_has(value, (const char *const[]){__VA_ARGS__, NULL})

static inline void shell_has(const json_t *value, const char *const pairs[]) {
    for (; *pairs; pairs += 2) {
        const json_t *found = member(value, *pairs);
        char *dumped = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT), size[32];
        snprintf(size, sizeof size, "%zu", json_array_size(found));
        const char *is = strchr(*pairs, '#')     ? size
                         : json_is_string(found) ? json_string_value(found)
                         : dumped                ? dumped
                                                 : "nothing";
        if (strcmp(is, pairs[1]) != 0)
            fail_msg("%s is %s instead of %s", *pairs, is, pairs[1]);
        free(dumped);
    }
}

/* The same of what a command prints. */
#define assert_json(line, status, ...)                                                             \
    do {                                                                                           \
        json_t *printed = json_of(line, status);                                                   \
        assert_has(printed, __VA_ARGS__);                                                          \
        json_decref(printed);                                                                      \
    } while (0)

/* ---- databases in this folder ---- */

/* The first column of the only row of the last statement.  Free it. */
static inline char *query(const char *database, const char *sql) {
    sqlite3 *connection = NULL;
    sqlite3_stmt *statement = NULL;
    int status = SQLITE_DONE;
    assert_int_equal(sqlite3_open(database, &connection), SQLITE_OK);
    for (const char *rest = sql; *rest; status = sqlite3_step(statement)) {
        sqlite3_finalize(statement);
        if (sqlite3_prepare_v2(connection, rest, -1, &statement, &rest) != SQLITE_OK)
            fail_msg("%s: %s", sql, sqlite3_errmsg(connection));
    }
    assert_int_equal(status, SQLITE_ROW);
    const char *found = (const char *)sqlite3_column_text(statement, 0);
    char *copy = strdup(found ? found : "NULL");
    sqlite3_finalize(statement);
    sqlite3_close(connection);
    return copy;
}

static inline double query_number(const char *database, const char *sql) {
    AUTO(text) char *found = query(database, sql);
    return strtod(found, NULL);
}

static inline void assert_answer(const char *database, const char *sql, const char *expected) {
    AUTO(text) char *answer = query(database, sql);
    if (strcmp(answer, expected) != 0)
        print_error("%s\n", sql);
    assert_string_equal(answer, expected);
}

/* Of run.db, which most tests make. */
static inline void assert_run(const char *sql, const char *expected) {
    assert_answer("run.db", sql, expected);
}

/* Statements that answer nothing; how many rows they have changed. */
static inline int execute(const char *database, const char *sql) {
    sqlite3 *connection = NULL;
    assert_int_equal(sqlite3_open(database, &connection), SQLITE_OK);
    if (sqlite3_exec(connection, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(connection));
    int changes = sqlite3_changes(connection);
    assert_int_equal(sqlite3_close(connection), SQLITE_OK);
    return changes;
}

/* ---- the folder ---- */

/* Training that takes a moment. */
#define TINY                                                                                       \
    " --set layers=1 --set width=16 --set heads=2 --set expert-width=16 --set sequence=16"         \
    " --set batch=4 --set iterations=3 --set repeat=1"

/* A suite of such jobs on two ranks: what else all have, and the jobs. */
#define SMALL_SUITE(name, common, jobs)                                                            \
    "suite: " name "\ncommon: {ranks: 2, layers: 3, width: 16, heads: 2, experts: 8, "             \
    "expert-width: 16, sequence: 16, batch: 4, text: default, " common "}\njobs: [" jobs "]\n"

/* Text to learn from, and the path to the programs; use as a group's setup. */
static inline int enter_shell(void **state) {
    char path[4096];
    int failed = enter_folder(state);
    uint64_t seed = test_seed();
    FILE *file = fopen("words", "w");
    for (int i = 0; i < 20000; i++)
        fprintf(file, "%c%c%c ", 'a' + test_random_int(&seed, 0, 9),
                'a' + test_random_int(&seed, 0, 9), 'a' + test_random_int(&seed, 0, 9));
    fclose(file);
    snprintf(path, sizeof path, "%s/words", test_folder);
    setenv("MOEPERF_TEXT", path, 1);
    snprintf(path, sizeof path, "%s:%s", MOEPERF_FOLDER, getenv("PATH"));
    setenv("PATH", path, 1);
    /* Under the sanitizer ranks end with what the MPI library never frees: mpirun has none of them
     * look for leaks, nor is one alone a failure.  moeperf's own would be seen (shell). */
    setenv("OMPI_MCA_mca_base_env_list", "ASAN_OPTIONS=detect_leaks=0", 1);
    setenv("LSAN_OPTIONS", "exitcode=0", 1);
    return failed;
}
