/* moeperf import: others' loads as a trace. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "harness/workload/formats.h"

/* moeperf's own format: `mp_formats` has the others'. */
static const struct mp_format native = {"native",
                                        "moeperf's own .mptrace, checked and written anew"};

struct import_flags {
    const char *kind, *output, *experts;
    bool ragged;
};

/* What the command does and the kinds it knows; to be freed. */
static char *write_about(void) {
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return NULL;
    fputs("Reads the loads of a training or serving run that was recorded by something else\n"
          "and writes them as a trace: all of FILE or, where something is wrong in it,\n"
          "nothing.  What the format left open is in the trace's notes.\n\nkinds:\n",
          stream);
    for (const struct mp_format *format = mp_formats; format->name; format++)
        fprintf(stream, "  %-15s %s\n", format->name, format->description);
    fprintf(stream, "  %-15s %s", native.name, native.description);
    if (fclose(stream)) {
        free(text);
        return NULL;
    }
    return text;
}

static int parse(struct import_flags *flags, int argc, char *argv[], struct cli_words *words,
                 struct mp_error *error) {
    const struct cli_flag table[] = {
        {"--as", CLI_VALUE, &flags->kind, "KIND",
         "what FILE is; otherwise its name's ending says so"},
        {"-o", CLI_VALUE, &flags->output, "OUT", "trace to write, OUT.mptrace by custom"},
        {"--experts", CLI_VALUE, &flags->experts, "N",
         "experts of a layer, for a kind that does not say: megatron,\n"
         "megatron-tokens, csv-tokens"},
        {"--ragged", CLI_SWITCH, &flags->ragged, NULL,
         "ranks and layers may have different numbers of routes;\n"
         "without it that is an error"},
        {0},
    };
    char *about = write_about();
    if (!about)
        return mp_fail(error, MP_ENOMEM, "no memory for the list of kinds");
    const struct cli_usage usage = {
        "moeperf import FILE --as KIND -o OUT.mptrace",
        about,
        table,
        1,
        1,
        "  moeperf import loads.csv --as csv-wide -o loads.mptrace\n"
        "  moeperf import counts.json --as sglang --ragged -o counts.mptrace\n"
        "  moeperf import router_traces --as megatron --experts 64 -o router.mptrace\n"};
    int code = cli_parse(&usage, argc, argv, words, error);
    free(about);
    return code;
}

/* The kind that was named, or that the file's name suggests. */
static int choose_kind(struct import_flags *flags, const char *path, struct mp_error *error) {
    const char *ending = strrchr(path, '.');
    if (flags->kind)
        return MP_OK;
    flags->kind = ending && !strcmp(ending, ".mptrace") ? native.name : mp_format_guess(path);
    if (flags->kind)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "the name of %s does not say what it is; --as KIND does, moeperf import --help "
                   "lists the kinds",
                   path);
}

static int open_input(const struct import_flags *flags, const char *path,
                      struct mp_trace_stream **stream, struct mp_error *error) {
    int64_t experts = 0;
    if (flags->experts) {
        int code = cli_whole("--experts", flags->experts, 1, INT32_MAX, &experts, error);
        if (code)
            return code;
    }
    const bool is_native = !strcmp(flags->kind, native.name);
    if (is_native && !experts)
        return mp_trace_open(path, stream, error);
    if (is_native)
        return mp_fail(error, MP_EINVAL, "--experts: a trace says itself how many there are");
    const struct mp_format_options options = {(int)experts};
    return mp_format_open_with(flags->kind, path, &options, stream, error);
}

static int import(const struct mp_systems *systems, int argc, char *argv[],
                  struct mp_error *error) {
    (void)systems;
    struct import_flags flags = {0};
    struct cli_words words;
    struct mp_trace_stream *stream;
    int code = parse(&flags, argc, argv, &words, error);
    if (code)
        return code > 0 ? CLI_SUCCESS : code;
    const char *path = words.word[0];
    if (!flags.output)
        return mp_fail(error, MP_EINVAL, "-o OUT.mptrace is missing: which file to write");
    code = choose_kind(&flags, path, error);
    if (!code)
        code = open_input(&flags, path, &stream, error);
    if (code)
        return code;
    if (flags.ragged)
        mp_trace_allow_ragged(stream);
    code = cli_write_trace(stream, flags.output, error);
    if (!code && fflush(stdout))
        code = mp_fail(error, MP_EIO, "can't write the summary: %s", strerror(errno));
    return code;
}

const struct cli_command cli_import = {"import", "makes a trace of loads that others recorded",
                                       import};
