/* moeperf import: others' loads as a trace, others' recordings of a program as a run. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/cli/recording_flags.h"
#include "harness/cli/trace_file.h"
#include "harness/recordings/recordings.h"
#include "harness/workload/formats.h"
#include "reference/base/option.h"

enum { KINDS_LIMIT = 32 };

static struct {
    const char *kind, *output, *database;
    struct cli_recording_flags recording;
    bool ragged;
} given;

static const struct cli_flag known_flags[] = {
    {"--as", CLI_VALUE, &given.kind, "KIND",
     "what FILE is; otherwise its beginning or its name says so"},
    {"--db", CLI_VALUE, &given.database, "FILE",
     "of recordings: database to add the run to (" CLI_DATABASE ")"},
    {"--rules", CLI_REPEATED, &given.recording.rules, "NAME", "of recordings: " CLI_RULES_HELP},
    {"--suggest", CLI_VALUE, &given.recording.suggest, "FILE", "of recordings: " CLI_SUGGEST_HELP},
    {"--system", CLI_VALUE, &given.recording.run.system, "NAME",
     "of recordings: what reports call the run (the kind's name)"},
    {"--workload", CLI_VALUE, &given.recording.run.workload, "NAME",
     "of recordings: what it was given to do (recorded)"},
    {"--loads", CLI_VALUE, &given.recording.run.loads.path, "PATH",
     "of recordings: " CLI_LOADS_HELP},
    {"--loads-as", CLI_VALUE, &given.recording.run.loads.kind, "KIND", CLI_LOADS_AS_HELP},
    {"--job", CLI_VALUE, &given.recording.job, "FILE", "of recordings: " CLI_JOB_HELP},
    {"-o", CLI_VALUE, &given.output, "OUT", "of loads: trace to write, OUT.mptrace by custom"},
    {"--experts", CLI_COUNT, CLI_NUMBER(&given.recording.run.loads.experts, 1, INT32_MAX), "N",
     "experts of a layer, for a kind that does not say: megatron,\n"
     "megatron-tokens, csv-tokens"},
    {"--ragged", CLI_SWITCH, &given.ragged, NULL,
     "ranks and layers may have different numbers of routes;\n"
     "without it that is an error"},
    {0},
};

/* What the command does and the kinds it knows. */
static const struct cli_usage *find_usage(int argc, char *argv[], struct mp_error *error) {
    static char about[4096];
    static const struct cli_usage usage = {
        "moeperf import FILE... [--as KIND] [--db FILE] [--rules NAME]\n"
        "       moeperf import FILE [--as KIND] -o OUT.mptrace",
        about,
        known_flags,
        1,
        CLI_WORDS_LIMIT,
        "  moeperf import rank*.json.gz --db run.db\n"
        "  moeperf import report.sqlite --db run.db --rules my.yaml\n"
        "  moeperf import loads.csv --as csv-wide -o loads.mptrace\n"
        "  moeperf import counts.json --as sglang --ragged -o counts.mptrace\n"
        "  moeperf import router_traces --as megatron --experts 64 -o router.mptrace\n"};
    FILE *stream = fmemopen(about, sizeof about, "w");
    (void)argc, (void)argv;
    if (!stream) {
        mp_no_memory(error);
        return NULL;
    }
    fputs("Reads what something else recorded of a training or serving run.  Recordings, one\n"
          "file per rank or one of all, become a run of a database, as those of moeperf\n"
          "record: rules map ranges to phases, and every report works; of a file that is cut\n"
          "or damaged what is before counts.  Loads become a trace: all of FILE or, where\n"
          "something is wrong in it, nothing.  What the format left open is in the trace's\n"
          "notes.\n\nkinds of recordings:\n",
          stream);
    for (int i = 0; mp_recording_formats[i]; i++)
        fprintf(stream, "  %-15s %s\n", mp_recording_formats[i]->name,
                mp_recording_formats[i]->description);
    fputs("kinds of loads:\n", stream);
    for (const struct mp_format *format = mp_formats; format->name; format++)
        fprintf(stream, "  %-15s %s%s", format->name, format->description,
                format[1].name ? "\n" : "");
    fclose(stream);
    return &usage;
}

/* --as names a kind. */
static int check_kind(const char *kind, struct mp_error *error) {
    const char *known[KINDS_LIMIT + 1];
    int count = 0;
    for (int i = 0; mp_recording_formats[i] && count < KINDS_LIMIT; i++)
        known[count++] = mp_recording_formats[i]->name;
    for (int i = 0; mp_formats[i].name && count < KINDS_LIMIT; i++)
        known[count++] = mp_formats[i].name;
    known[count] = NULL;
    if (MP_ANY(i, count, !strcmp(kind, known[i])))
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "--as %.64s: no kind is called so (moeperf import --help lists them)%s", kind,
                   mp_meant(kind, known).text);
}

/* The format that --as names, or that recognises the first file; NULL: it is none of a recording.
 */
static int recording_format(const char *path, const struct mp_recording_format **format,
                            struct mp_error *error) {
    if (given.kind)
        MP_TRY(check_kind(given.kind, error));
    if (access(path, R_OK))
        return mp_fail_errno(error, "can't open %s", path);
    struct mp_error unread = {0};
    *format =
        given.kind ? mp_recording_format_named(given.kind) : mp_recording_recognise(path, &unread);
    return !*format && unread.code == MP_EFORMAT ? mp_fail(error, unread.code, "%s", unread.text)
                                                 : MP_OK; /* a folder has loads */
}

/* How to read the same files once more, with other rules. */
static void plan_again(const char *database, const struct cli_words *words) {
    given.recording.resume = strdup("moeperf import");
    cli_add_word(&given.recording, "--as", given.kind);
    cli_add_word(&given.recording, "--db", database);
    cli_add_recording_flags(&given.recording, NULL);
    for (int i = 0; i < words->count; i++)
        cli_add_word(&given.recording, "", words->word[i]);
}

static int import_recordings(const struct mp_recording_format *format,
                             const struct mp_systems *systems, const struct cli_words *words,
                             struct mp_error *error) {
    if (given.output || given.ragged)
        return mp_fail(error, MP_EINVAL,
                       "%s: a recording (%s) goes into a database, --db FILE; -o and --ragged are "
                       "for loads",
                       words->word[0], format->name);
    for (int i = 1; !given.kind && i < words->count; i++)
        if (mp_recording_recognise(words->word[i], NULL) != format)
            return mp_fail(error, MP_EINVAL,
                           "%s: it can't be read, or is not of kind %s as %s is; files of one kind "
                           "are right, or --as KIND",
                           words->word[i], format->name, words->word[0]);
    const char *database = given.database ? given.database : CLI_DATABASE;
    plan_again(database, words);
    int code = given.recording.resume
                   ? cli_read_recording_flags(&given.recording, database, systems, error)
                   : mp_fail(error, MP_ENOMEM, "no memory for %d paths", words->count);
    given.recording.run.resume = given.recording.resume;
    const struct mp_recordings recordings = {format, words->word, words->count, database,
                                             given.recording.run};
    if (!code)
        code = mp_recordings_import(&recordings, cli_wait_for_lock, stderr, error);
    cli_destroy_recording_flags(&given.recording);
    return code;
}

static int import_loads(const struct cli_words *words, struct mp_error *error) {
    struct mp_trace_stream *stream;
    const char *path = words->word[0];
    struct stat status;
    const char *what = !stat(path, &status) && S_ISDIR(status.st_mode)
                           ? "it is a folder; of recordings the files are named, as in FOLDER/*"
                           : "its beginning is that of no recording that --help lists (--as KIND "
                             "says what it is)";
    if (words->count > 1)
        return mp_fail(error, MP_EINVAL,
                       "%s: one file of loads makes a trace; several are for recordings, and %s is "
                       "none that --help lists",
                       words->word[1], path);
    const struct cli_recording_flags *recording = &given.recording;
    if (given.database || recording->rules.count || recording->run.system ||
        recording->run.workload || recording->run.loads.path || recording->job)
        return mp_fail(error, MP_EINVAL,
                       "%s: %s; loads become a trace, -o OUT.mptrace, and --db, --rules, --system, "
                       "--workload, --loads and --job are for recordings",
                       path, what);
    if (!given.output && !given.kind)
        return mp_fail(error, MP_EINVAL,
                       "%s: %s; if it has loads, -o OUT.mptrace is missing: which file to write",
                       path, what);
    if (!given.output)
        return mp_fail(error, MP_EINVAL, "-o OUT.mptrace is missing: which file to write");
    const char *kind = given.kind ? given.kind : mp_format_guess(path);
    if (!kind)
        return mp_fail(error, MP_EINVAL,
                       "the name of %s does not say what it is; --as KIND does, moeperf import "
                       "--help lists the kinds",
                       path);
    MP_TRY(mp_format_open(kind, path, recording->run.loads.experts, &stream, error));
    if (given.ragged)
        mp_trace_allow_ragged(stream);
    return cli_write_trace(stream, given.output, error);
}

static int import(const struct cli_call *call, struct mp_error *error) {
    const struct mp_recording_format *format = NULL;
    MP_TRY(recording_format(call->words->word[0], &format, error));
    return format ? import_recordings(format, call->systems, call->words, error)
                  : import_loads(call->words, error);
}

const struct cli_command cli_import = {
    "import", "reads others' recordings into a database, others' loads into a trace", import,
    .find_usage = find_usage};
