#include "profiler/record/spool_writer.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_BYTES = 1 << 20 };

int spool_writer_create(struct spool_writer *writer, const char *path, struct mp_error *error) {
    *writer = (struct spool_writer){.batch = malloc(BATCH_BYTES)};
    if (!writer->batch)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to write it", path);
    int code = spool_file_create(&writer->file, path, error);
    if (code) {
        free(writer->batch);
        writer->batch = NULL;
    }
    return code;
}

static int flush(struct spool_writer *writer, struct mp_error *error) {
    int code = writer->filled > 0
                   ? spool_file_append(&writer->file, writer->batch, writer->filled, error)
                   : MP_OK;
    writer->filled = 0;
    return code;
}

/* With `zeros` bytes of zero behind the tail, and then the padding. */
static int append(struct spool_writer *writer, enum mp_spool_type type, const void *payload,
                  size_t size, const void *tail, size_t tail_size, size_t zeros,
                  struct mp_error *error) {
    const size_t whole = spool_record_size(size + tail_size + zeros);
    int code = writer->filled + whole > BATCH_BYTES ? flush(writer, error) : MP_OK;
    uint8_t *at = spool_begin(writer->batch + writer->filled, type, size + tail_size + zeros);
    if (size > 0)
        memcpy(at, payload, size);
    if (tail_size > 0)
        memcpy(at + size, tail, tail_size);
    writer->filled += whole;
    return code;
}

int spool_writer_record(struct spool_writer *writer, enum mp_spool_type type, const void *payload,
                        size_t size, const void *tail, size_t tail_size, struct mp_error *error) {
    return append(writer, type, payload, size, tail, tail_size, 0, error);
}

int spool_writer_text(struct spool_writer *writer, enum mp_spool_type type, const void *payload,
                      size_t size, const char *text, struct mp_error *error) {
    return append(writer, type, payload, size, text, strnlen(text, SPOOL_TEXT_LIMIT), 1, error);
}

int spool_writer_copy(struct spool_writer *writer, const void *bytes, size_t size, void **record,
                      struct mp_error *error) {
    int code = writer->filled + size > BATCH_BYTES ? flush(writer, error) : MP_OK;
    memcpy(writer->batch + writer->filled, bytes, size);
    if (record)
        *record = writer->batch + writer->filled;
    writer->filled += size;
    return code;
}

int spool_writer_close(struct spool_writer *writer, struct mp_error *error) {
    int code = flush(writer, error);
    int closed = spool_file_close(&writer->file, error);
    free(writer->batch);
    writer->batch = NULL;
    return code ? code : closed;
}
