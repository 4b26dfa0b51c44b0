#include "harness/workload/named.h"

#include <limits.h>
#include <string.h>

#include "harness/workload/formats.h"
#include "harness/workload/generate.h"

static const char BLANKS[] = " \t";

/* The generator that the text begins with, NULL if none. */
static const struct mp_generator *kind_of(const char *text) {
    size_t length = strcspn(text, BLANKS);
    for (const struct mp_generator *kind = mp_generators; kind->name; kind++)
        if (strlen(kind->name) == length && !strncmp(kind->name, text, length))
            return kind;
    return NULL;
}

struct chosen {
    const struct mp_generator *kind;
    struct mp_generate_options options;
};

static int set_option(void *context, const char *name, const char *value, struct mp_error *error) {
    struct chosen *chosen = context;
    return mp_generate_set(chosen->kind, &chosen->options, name, value, NULL, error);
}

static int generate(const struct mp_generator *kind, const char *text,
                    const struct mp_trace_wanted *wanted, struct mp_trace_stream **stream,
                    struct mp_error *error) {
    struct chosen chosen = {.kind = kind};
    struct mp_generate_options *options = &chosen.options;
    MP_TRY(mp_generate_set_defaults(kind, options, error));
    if (wanted->tokens > INT_MAX)
        return mp_fail(error, MP_ELIMIT, "%s: %lld tokens of a rank are more than %d", kind->name,
                       (long long)wanted->tokens, INT_MAX);
    options->iterations = wanted->iterations;
    options->layers = wanted->shape.layers;
    options->experts = wanted->shape.experts;
    options->ranks = wanted->shape.ranks;
    options->micro_batches = wanted->shape.micro_batches;
    options->top_k = wanted->shape.top_k;
    options->tokens = (int)wanted->tokens;
    MP_TRY(mp_options_read_line(text + strlen(kind->name), kind->name, set_option, &chosen, error));
    return mp_generate(kind, options, stream, error);
}

int mp_trace_open_named(const char *text, const struct mp_trace_wanted *wanted,
                        struct mp_trace_stream **stream, struct mp_error *error) {
    const struct mp_generator *kind = kind_of(text);
    *stream = NULL;
    if (kind)
        return generate(kind, text, wanted, stream, error);
    const char *format = mp_format_guess(text);
    return format ? mp_format_open(format, text, 0, stream, error)
                  : mp_trace_open(text, stream, error);
}

bool mp_trace_names_generator(const char *text) {
    return kind_of(text) != NULL;
}
