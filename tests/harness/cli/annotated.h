/* What tests of programs that annotate themselves share: the collector, PyPI's nvtx for those in
 * Python, and questions to the databases that come of them. */
#ifndef MOEPERF_TESTS_HARNESS_CLI_ANNOTATED_H
#define MOEPERF_TESTS_HARNESS_CLI_ANNOTATED_H

#include <sqlite3.h>

#include "tests/harness/cli/shell.h"

static inline bool has_collector(void) {
    return !access(MOEPERF_FOLDER "/libmoeperf-nvtx.so", R_OK);
}

#define NO_COLLECTOR "built without NVTX's headers, so there is no collector"

/* python3 with PyPI's nvtx where ci/setup puts it. */
#define PYTHON "PYTHONPATH=" PYTHON_PACKAGES " python3"

static inline void need_python_nvtx(void) {
    if (RUNS_SANITIZED)
        skip("python3 can't load what the sanitizers watch");
    if (system(PYTHON " -c 'import nvtx' 2>/dev/null"))
        skip("python3 has no nvtx; ci/setup tests installs it");
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
