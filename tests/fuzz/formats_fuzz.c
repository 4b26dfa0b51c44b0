/* Arbitrary bytes as a file of each trace format: the readers end, give only blocks of the
 * announced shape, and say what is wrong.  The first byte chooses the format. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/workload/formats.h"
#include "tests/fuzz/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* An open file of nothing but these bytes; its path. */
static int file_of(const uint8_t *bytes, size_t size, char path[32]) {
    int file = memfd_create("fuzz", 0);
    expect(file >= 0 && write(file, bytes, size) == (ssize_t)size, "a file in memory");
    snprintf(path, 32, "/proc/self/fd/%d", file);
    return file;
}

static void walk(struct mp_trace_stream *stream) {
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    expect(info->source && info->source[0] && info->notes, "a trace says where it is from");
    struct mp_error error = {0};
    const struct mp_trace_block *block = NULL;
    mp_trace_allow_ragged(stream);
    for (int blocks = 0; blocks < 4096; blocks++) {
        int code = mp_trace_next(stream, &block, &error);
        expect(!code || (error.code == code && error.text[0]), "an error has its sentence");
        if (code || !block)
            break;
        expect(block->load.ranks == info->shape.ranks &&
                   block->load.experts == info->shape.experts && block->layer < info->shape.layers,
               "blocks have the announced shape");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size == 0)
        return 0;
    int kinds = 0;
    while (mp_formats[kinds].name)
        kinds++;
    char path[32];
    int file = file_of(input + 1, size - 1, path);
    struct mp_trace_stream *stream = NULL;
    struct mp_error error = {0};
    const char *kind = mp_formats[input[0] % kinds].name;
    int code = mp_format_open(kind, path, strcmp(kind, "megatron") ? 0 : 8, &stream, &error);
    expect(!code || (error.code == code && error.text[0]), "an error has its sentence");
    if (!code) {
        walk(stream);
        mp_trace_stream_destroy(stream);
    }
    close(file);
    return 0;
}
