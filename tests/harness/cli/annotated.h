/* What tests of programs that annotate themselves share: the collector, PyPI's nvtx for those in
 * Python, and questions to the databases that come of them. */
#ifndef MOEPERF_TESTS_HARNESS_CLI_ANNOTATED_H
#define MOEPERF_TESTS_HARNESS_CLI_ANNOTATED_H

#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/cli/shell.h"

static inline bool has_collector(void) {
    if (!access(MOEPERF_FOLDER "/libmoeperf-nvtx.so", R_OK))
        return true;
    print_message("skipped: built without NVTX's headers, so there is no collector\n");
    return false;
}

/* Whether programs started with PYTHONPATH=python have PyPI's nvtx; where it is not installed, pip
 * may get it into this folder. */
static inline bool has_python_nvtx(void) {
    if (RUNS_SANITIZED) {
        print_message("skipped: python3 can't load what the sanitizers watch\n");
        return false;
    }
    char *installed = shell("export PYTHONPATH=python; python3 -c 'import nvtx' 2>/dev/null || "
                            "python3 -m pip install --quiet --no-deps "
                            "--disable-pip-version-check --target python nvtx >/dev/null 2>&1; "
                            "python3 -c 'import nvtx; print(\"works\")' || true",
                            0);
    const bool works = strstr(installed, "works\n") != NULL;
    free(installed);
    if (!works)
        print_message("skipped: python3 has no nvtx, and pip can't get it\n");
    return works;
}

/* The first column of the only row, from a database in this folder.  Free it. */
static inline char *query(const char *database, const char *sql) {
    sqlite3 *connection = NULL;
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_open(database, &connection), SQLITE_OK);
    if (sqlite3_prepare_v2(connection, sql, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(connection));
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    const char *text = (const char *)sqlite3_column_text(statement, 0);
    char *copy = strdup(text ? text : "NULL");
    sqlite3_finalize(statement);
    sqlite3_close(connection);
    return copy;
}

static inline void assert_answer(const char *database, const char *sql, const char *expected) {
    char *answer = query(database, sql);
    if (strcmp(answer, expected) != 0)
        print_error("%s\n", sql);
    assert_string_equal(answer, expected);
    free(answer);
}

#endif
