/* Loads that one line names: see named.h. */
#include "harness/workload/named.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

static int set_word(const struct mp_generator *kind, char *word,
                    struct mp_generate_options *options, struct mp_error *error) {
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return mp_fail(error, MP_EINVAL, "%s: \"%.100s\" should be option=value", kind->name, word);
    *equals = '\0';
    return mp_generate_set(kind, options, word, equals + 1, NULL, error);
}

static int generate(const struct mp_generator *kind, const char *text,
                    const struct mp_trace_wanted *wanted, struct mp_trace_stream **stream,
                    struct mp_error *error) {
    struct mp_generate_options options;
    int64_t tokens = wanted->tokens;
    char *words = strdup(text), *rest = NULL;
    int code = words ? mp_generate_set_defaults(kind, &options, error)
                     : mp_fail(error, MP_ENOMEM, "no memory for the options of %s", kind->name);
    if (!code && tokens > INT_MAX)
        code = mp_fail(error, MP_ELIMIT, "%s: %lld tokens of a rank are more than %d", kind->name,
                       (long long)tokens, INT_MAX);
    if (!code) {
        options.iterations = wanted->iterations;
        options.layers = wanted->shape.layers;
        options.experts = wanted->shape.experts;
        options.ranks = wanted->shape.ranks;
        options.micro_batches = wanted->shape.micro_batches;
        options.top_k = wanted->shape.top_k;
        options.tokens = (int)tokens;
        strtok_r(words, BLANKS, &rest);
    }
    for (char *word; !code && (word = strtok_r(NULL, BLANKS, &rest));)
        code = set_word(kind, word, &options, error);
    free(words);
    return code ? code : mp_generate(kind, &options, stream, error);
}

int mp_trace_open_named(const char *text, const struct mp_trace_wanted *wanted,
                        struct mp_trace_stream **stream, struct mp_error *error) {
    const struct mp_generator *kind = kind_of(text);
    *stream = NULL;
    if (kind)
        return generate(kind, text, wanted, stream, error);
    const char *format = mp_format_guess(text);
    if (format)
        return mp_fail(error, MP_EFORMAT,
                       "%s: is not a trace; moeperf import %s --as %s -o FILE makes one of it",
                       text, text, format);
    return mp_trace_open(text, stream, error);
}
