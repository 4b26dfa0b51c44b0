/* moeperf as people start it, in a folder with text to learn from. */
#ifndef MOEPERF_TESTS_HARNESS_CLI_SHELL_H
#define MOEPERF_TESTS_HARNESS_CLI_SHELL_H

#include <jansson.h>
#include <sys/wait.h>

#include "tests/harness/folder.h"

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

/* A shell line ends with this status and says all of the texts; LACKS "text": it must not. */
#define LACKS "\1"
#define assert_says(line, status, ...)                                                             \
    shell_says(line, status, (const char *const[]){__VA_ARGS__, NULL})

static inline void shell_says(const char *line, int status, const char *const texts[]) {
    char *output = shell(line, status);
    for (; *texts; texts++) {
        bool lacks = **texts == *LACKS;
        if (!strstr(output, *texts + lacks) != lacks)
            fail_msg("%s: says\n%s\n%s\n%s", line, output, lacks ? "with" : "instead of",
                     *texts + lacks);
    }
    free(output);
}

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
    /* Under the sanitizer ranks end with what the MPI library never frees; their words go to a log.
     * moeperf's own would be seen (shell). */
    setenv("LSAN_OPTIONS", "exitcode=0", 1);
    return failed;
}

#endif
