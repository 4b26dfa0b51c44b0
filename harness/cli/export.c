/* moeperf export: what is in a database, for others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "harness/workload/run_trace.h"

struct export_flags {
    const char *kind, *database;
    struct cli_words runs;
};

static int parse(struct export_flags *flags, int argc, char *argv[], struct cli_words *words,
                 struct mp_error *error) {
    const struct cli_flag table[] = {
        {"--as", CLI_VALUE, &flags->kind, "KIND", "what to write: trace (the default)"},
        {"--run", CLI_REPEATED, &flags->runs, "ID",
         "the run; not needed if the database has one only"},
        {"--db", CLI_VALUE, &flags->database, "FILE", "database to read (" CLI_DATABASE ")"},
        {0},
    };
    const struct cli_usage usage = {
        "moeperf export --as trace --run ID [--db FILE] OUT.mptrace",
        "Writes the loads of a recorded run as a trace: how many routes every rank sent to\n"
        "every expert, in every layer of every iteration that all ranks finished, before any\n"
        "were dropped.",
        table,
        1,
        1,
        "  moeperf export --as trace --run 1 --db out/quickstart/results.db ep.mptrace\n"};
    return cli_parse(&usage, argc, argv, words, error);
}

/* 0: none was named. */
static int choose_run(const struct export_flags *flags, int64_t *run_id, struct mp_error *error) {
    char *end;
    *run_id = 0;
    if (flags->runs.count == 0)
        return MP_OK;
    if (flags->runs.count > 1)
        return mp_fail(error, MP_EINVAL,
                       "--run is given %d times; a trace is of one run, so export one at a time",
                       flags->runs.count);
    errno = 0;
    *run_id = strtoll(flags->runs.word[0], &end, 10);
    if (end == flags->runs.word[0] || *end || errno || *run_id < 1)
        return mp_fail(error, MP_EINVAL,
                       "--run %.100s: should be the number of one run; moeperf report --runs lists "
                       "them",
                       flags->runs.word[0]);
    return MP_OK;
}

static int export(const struct mp_systems *systems, int argc, char *argv[],
                  struct mp_error *error) {
    (void)systems;
    struct export_flags flags = {.kind = "trace", .database = CLI_DATABASE};
    struct cli_words words;
    struct mp_store *store = NULL;
    struct mp_trace_stream *stream;
    int64_t run_id = 0;
    int code = parse(&flags, argc, argv, &words, error);
    if (code)
        return code > 0 ? CLI_SUCCESS : code;
    if (strcmp(flags.kind, "trace") != 0)
        return mp_fail(error, MP_EINVAL, "--as %.100s: only trace can be written", flags.kind);
    code = choose_run(&flags, &run_id, error);
    if (!code)
        code = mp_store_open_read_only(flags.database, &store, error);
    if (!code)
        code = mp_trace_open_run(store, flags.database, run_id, &stream, error);
    if (!code)
        code = cli_write_trace(stream, words.word[0], error);
    mp_store_close(store);
    if (!code && fflush(stdout))
        code = mp_fail(error, MP_EIO, "can't write the summary: %s", strerror(errno));
    return code;
}

const struct cli_command cli_export = {"export", "writes a run's loads as a trace", export};
