/* moeperf generate: computes a routing trace. */
#include "harness/workload/generate.h"

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "reference/base/characters.h"

enum { FLAGS_LIMIT = 24, NAME_SIZE = 32, HELP_SIZE = 640, ABOUT_SIZE = 2048 };

/* A flag for each option: --seed and so on, and what the kind asks. */
struct option_flags {
    char name[FLAGS_LIMIT][NAME_SIZE];
    char help[FLAGS_LIMIT][HELP_SIZE];
    const char *text[FLAGS_LIMIT];
    int count;
};

static void add_flags(struct option_flags *own, const struct mp_option table[],
                      struct cli_flag flags[]) {
    char accepts[256];
    for (const struct mp_option *option = table; option && option->name; option++) {
        int i = own->count++;
        snprintf(own->name[i], NAME_SIZE, "--%s", option->name);
        snprintf(own->help[i], HELP_SIZE, "%s; default %s: %s", option->help, option->default_value,
                 mp_options_describe(option, accepts, sizeof accepts));
        bool word = option->type == MP_OPTION_CHOICE;
        flags[i] = (struct cli_flag){own->name[i], CLI_VALUE, &own->text[i], word ? "WORD" : "N",
                                     own->help[i]};
    }
}

static int set_options(const struct mp_generator *kind, const struct option_flags *own,
                       struct mp_generate_options *options, struct mp_error *error) {
    MP_TRY(mp_generate_set_defaults(kind, options, error));
    for (int i = 0; i < own->count; i++)
        if (own->text[i])
            MP_TRY(mp_generate_set(kind, options, own->name[i] + 2, own->text[i], NULL, error));
    return MP_OK;
}

/* What --help says of the kind, or of all kinds when none is named. */
static void describe(const struct mp_generator *kind, char about[ABOUT_SIZE]) {
    if (kind) {
        snprintf(about, ABOUT_SIZE, "%s: %s.%s%s\n\n%s", kind->name, kind->title,
                 *kind->source ? "\nAfter " : "", kind->source, kind->models);
        return;
    }
    snprintf(about, ABOUT_SIZE,
             "Computes a routing trace.  The same options and seed give the same\n"
             "file on every machine.  moeperf generate KIND --help has the options\n"
             "of a kind.\n\nkinds:");
    for (kind = mp_generators; kind->name; kind++)
        mp_text_add(about, ABOUT_SIZE, "\n", "  %-9s  %s", kind->name, kind->title);
}

static struct {
    const struct mp_generator *kind; /* NULL: none was named */
    const char *path;
    struct option_flags own;
} given;

/* The kind comes first: it says which flags there are. */
static const struct cli_usage *find_usage(int argc, char *argv[], struct mp_error *error) {
    static char about[ABOUT_SIZE];
    static struct cli_flag flags[FLAGS_LIMIT + 2];
    static const struct cli_usage usage = {
        "moeperf generate KIND -o FILE [options]",
        about,
        flags,
        1,
        1,
        "  moeperf generate zipf -o zipf.mptrace --exponent 1 --iterations 5\n"
        "  moeperf generate w6 -o moving.mptrace --iterations 20 --period 5\n"};
    bool is_named = argc > 1 && argv[1][0] != '-';
    given.kind = is_named ? mp_generator_find(argv[1], error) : NULL;
    describe(given.kind, about);
    add_flags(&given.own, mp_generate_options, flags);
    add_flags(&given.own, given.kind ? given.kind->options : NULL, flags);
    flags[given.own.count] =
        (struct cli_flag){"-o", CLI_VALUE, &given.path, "FILE", "the trace to write"};
    return given.kind || !is_named ? &usage : NULL;
}

static int generate(const struct cli_call *call, struct mp_error *error) {
    if (!given.kind)
        return mp_fail(error, MP_EINVAL, "the kind comes first; usage: %s", call->usage->synopsis);
    if (!given.path)
        return mp_fail(error, MP_EINVAL, "where to? -o FILE names the trace to write");
    struct mp_generate_options options;
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    int64_t blocks;
    MP_TRY(set_options(given.kind, &given.own, &options, error));
    MP_TRY(mp_generate(given.kind, &options, &stream, error));
    MP_TRY(cli_copy_trace(stream, given.path, NULL, &blocks, error));
    fprintf(cli_beside(given.path), "%s: %lld block%s of %d rank%s and %d expert%s\n", given.path,
            (long long)blocks, blocks == 1 ? "" : "s", options.ranks, options.ranks == 1 ? "" : "s",
            options.experts, options.experts == 1 ? "" : "s");
    return MP_OK;
}

const struct cli_command cli_generate = {"generate", "computes a routing trace", generate,
                                         .find_usage = find_usage};
