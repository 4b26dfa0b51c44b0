/* Arbitrary bytes as a file of each trace format: the readers end, give only blocks of the
 * announced shape, and say what is wrong.  The first byte chooses the format. */
#include <string.h>

#include "harness/workload/formats.h"
#include "tests/fuzz/trace_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size == 0)
        return 0;
    int kinds = 0;
    while (mp_formats[kinds].name)
        kinds++;
    const char *path = input_file(input + 1, size - 1);
    struct mp_trace_stream *stream = NULL;
    struct mp_error error = {0};
    const char *kind = mp_formats[input[0] % kinds].name;
    int code = mp_format_open(kind, path, strcmp(kind, "megatron") ? 0 : 8, &stream, &error);
    expect_sentence(code, &error);
    if (code)
        return 0;
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    expect(info->source && info->source[0] && info->notes, "a trace says where it is from");
    walk(stream);
    mp_trace_stream_destroy(stream);
    return 0;
}
