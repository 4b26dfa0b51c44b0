#include "harness/workload/input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { PACKED = 1 << 16, PLAIN = 1 << 17 };

struct mp_input {
    char *path;
    gzFile file;         /* reads what is not gzipped as it is */
    ZSTD_DCtx *unpacker; /* NULL: a plain file */
    ZSTD_inBuffer packed;
    size_t frame_left; /* 0 between frames */
    bool unfinished;   /* the unpacker holds more than fitted */
    char *plain;       /* [PLAIN] */
    size_t at, size;   /* in plain */
    char *line;
    size_t capacity;
    int64_t lines;
    bool line_ended;
    unsigned char packed_bytes[PACKED];
};

int mp_input_open(const char *path, struct mp_input **input, struct mp_error *error) {
    static const unsigned char magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
    MP_AUTO(input) struct mp_input *made = NULL;
    unsigned char first[4];
    MP_TRY(MP_NEW(made, 1, error));
    MP_TRY(MP_NEW(made->plain, PLAIN, error));
    made->path = strdup(path);
    if (!made->path)
        return mp_no_memory(error);
    made->file = gzopen(path, "rbe");
    if (!made->file)
        return mp_fail_errno(error, "%s", path);
    if (gzread(made->file, first, 4) == 4 && memcmp(first, magic, 4) == 0 &&
        !(made->unpacker = ZSTD_createDCtx()))
        return mp_no_memory(error);
    MP_TRY(mp_input_rewind(made, error));
    *input = made;
    made = NULL;
    return MP_OK;
}

void mp_input_destroy(struct mp_input *input) {
    if (!input)
        return;
    if (input->file)
        gzclose(input->file);
    ZSTD_freeDCtx(input->unpacker);
    free(input->path);
    free(input->plain);
    free(input->line);
    free(input);
}

int mp_input_rewind(struct mp_input *input, struct mp_error *error) {
    gzclearerr(input->file);
    if (gzrewind(input->file))
        return mp_fail(error, MP_EIO, "%s: can't be read twice (%s); give a regular file",
                       input->path, strerror(errno));
    if (input->unpacker)
        ZSTD_DCtx_reset(input->unpacker, ZSTD_reset_session_only);
    input->packed = (ZSTD_inBuffer){.src = input->packed_bytes};
    input->frame_left = 0;
    input->unfinished = false;
    input->at = input->size = 0;
    input->lines = 0;
    return MP_OK;
}

static int read_file(struct mp_input *input, void *to, size_t size, size_t *got,
                     struct mp_error *error) {
    const int read = gzread(input->file, to, (unsigned)size);
    *got = read > 0 ? (size_t)read : 0;
    if (read > 0)
        return MP_OK;
    int number = Z_OK;
    const char *reason = gzerror(input->file, &number);
    if (number == Z_ERRNO)
        return mp_fail_errno(error, "%s", input->path);
    return number == Z_OK || number == Z_STREAM_END
               ? MP_OK
               : mp_fail(error, MP_EFORMAT, "%s: damaged gzip data after line %lld: %s",
                         input->path, (long long)input->lines, reason);
}

/* Unpacks until there is something or the file ends. */
static int unpack(struct mp_input *input, struct mp_error *error) {
    ZSTD_outBuffer out = {.dst = input->plain, .size = PLAIN};
    while (out.pos == 0) {
        if (input->packed.pos == input->packed.size && !input->unfinished) {
            size_t got;
            MP_TRY(read_file(input, input->packed_bytes, PACKED, &got, error));
            input->packed.size = got;
            input->packed.pos = 0;
            if (got == 0 && input->frame_left)
                return mp_fail(error, MP_EFORMAT,
                               "%s: the file is cut off inside a packed frame, after line %lld",
                               input->path, (long long)input->lines);
            if (got == 0)
                break;
        }
        input->frame_left = ZSTD_decompressStream(input->unpacker, &out, &input->packed);
        if (ZSTD_isError(input->frame_left))
            return mp_fail(error, MP_EFORMAT, "%s: damaged zstd data after line %lld: %s",
                           input->path, (long long)input->lines,
                           ZSTD_getErrorName(input->frame_left));
        input->unfinished = out.pos == out.size && input->frame_left;
    }
    input->size = out.pos;
    return MP_OK;
}

/* Something to take from input->plain, unless the file is at its end. */
static int fill(struct mp_input *input, struct mp_error *error) {
    if (input->at < input->size)
        return MP_OK;
    input->at = input->size = 0;
    return input->unpacker ? unpack(input, error)
                           : read_file(input, input->plain, PLAIN, &input->size, error);
}

int mp_input_read(struct mp_input *input, void *to, size_t size, size_t *got,
                  struct mp_error *error) {
    for (*got = 0; *got < size;) {
        MP_TRY(fill(input, error));
        size_t part = input->size - input->at;
        if (part == 0)
            break;
        if (part > size - *got)
            part = size - *got;
        memcpy((char *)to + *got, input->plain + input->at, part);
        input->at += part;
        *got += part;
    }
    return MP_OK;
}

/* Adds bytes to the line that has `length` so far, with room for a zero behind. */
static int extend(struct mp_input *input, size_t length, size_t part, struct mp_error *error) {
    if (length + part > MP_INPUT_LINE)
        return mp_fail(error, MP_ELIMIT, "%s:%lld: a line of more than %d bytes", input->path,
                       (long long)input->lines + 1, MP_INPUT_LINE);
    if (length + part >= input->capacity) {
        size_t capacity = 2 * (length + part) + 256;
        char *line = realloc(input->line, capacity);
        if (!line)
            return mp_fail(error, MP_ENOMEM, "%s:%lld: no memory for the line", input->path,
                           (long long)input->lines + 1);
        input->line = line;
        input->capacity = capacity;
    }
    memcpy(input->line + length, input->plain + input->at, part);
    return MP_OK;
}

int mp_input_line(struct mp_input *input, char **line, struct mp_error *error) {
    size_t length = 0;
    bool any = false, ended = false;
    while (!ended) {
        MP_TRY(fill(input, error));
        size_t part = input->size - input->at;
        if (part == 0)
            break;
        any = true;
        const char *end = memchr(input->plain + input->at, '\n', part);
        ended = end;
        if (end)
            part = (size_t)(end - (input->plain + input->at));
        MP_TRY(extend(input, length, part, error));
        length += part;
        input->at += part + ended;
    }
    *line = NULL;
    if (!any)
        return MP_OK;
    input->lines++;
    input->line_ended = ended;
    if (memchr(input->line, '\0', length))
        return mp_fail(error, MP_EFORMAT, "%s:%lld: a zero byte: this is not a text", input->path,
                       (long long)input->lines);
    if (length && input->line[length - 1] == '\r')
        length--;
    input->line[length] = '\0';
    *line = input->line + (input->lines == 1 && !strncmp(input->line, "\xEF\xBB\xBF", 3) ? 3 : 0);
    return MP_OK;
}

int64_t mp_input_line_number(const struct mp_input *input) {
    return input->lines;
}

bool mp_input_line_ended(const struct mp_input *input) {
    return input->line_ended;
}

const char *mp_input_path(const struct mp_input *input) {
    return input->path;
}
