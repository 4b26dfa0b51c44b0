/* Arbitrary text as a generator's options: lines "name=value" after a byte that chooses the kind.
 * What they ask for is refused with a sentence, or generated. */
#include <stdint.h>
#include <string.h>

#include "harness/workload/generate.h"
#include "tests/fuzz/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

enum { TEXT_LIMIT = 4096, BLOCKS_LIMIT = 4 };

static void generate(const struct mp_generator *kind, const struct mp_generate_options *options) {
    const int64_t sizes = (int64_t)options->ranks * options->experts * options->layers;
    if (options->layers > 64 || options->tokens > 1024 || sizes > 1 << 14)
        return; /* only takes time */
    struct mp_trace_stream *stream = NULL;
    struct mp_error error = {0};
    int code = mp_generate(kind, options, &stream, &error);
    expect_sentence(code, &error);
    for (int blocks = 0; !code && blocks < BLOCKS_LIMIT; blocks++) {
        const struct mp_trace_block *block = NULL;
        code = mp_trace_next(stream, &block, &error);
        expect_sentence(code, &error);
        if (!block)
            break;
        expect(mp_load_total(&block->load) % options->top_k == 0, "tokens take top_k experts");
    }
    mp_trace_stream_destroy(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    static char text[TEXT_LIMIT];
    int kinds = 0;
    while (mp_generators[kinds].name)
        kinds++;
    if (size == 0 || size > TEXT_LIMIT)
        return 0;
    const struct mp_generator *kind = &mp_generators[input[0] % kinds];
    memcpy(text, input + 1, size - 1);
    text[size - 1] = '\0';
    struct mp_generate_options options;
    struct mp_error error = {0};
    expect(mp_generate_set_defaults(kind, &options, &error) == MP_OK, "defaults can be set");
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = '\0';
        error = (struct mp_error){0};
        int code = mp_generate_set(kind, &options, line, value, "fuzz", &error);
        expect_sentence(code, &error);
        if (code)
            return 0;
    }
    generate(kind, &options);
    return 0;
}
