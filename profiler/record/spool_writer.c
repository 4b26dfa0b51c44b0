#include "profiler/record/spool_writer.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_BYTES = 1 << 20 };

int spool_writer_create(struct spool_writer *writer, const char *path, struct mp_error *error) {
    *writer = (struct spool_writer){.batch = NULL};
    MP_TRY(MP_NEW(writer->batch, BATCH_BYTES, error));
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

/* Makes room for so many bytes. */
static int reserve(struct spool_writer *writer, size_t size, struct mp_error *error) {
    return writer->filled + size > BATCH_BYTES ? flush(writer, error) : MP_OK;
}

int spool_writer_add(struct spool_writer *writer, const struct mp_spool_record *record,
                     struct mp_error *error) {
    int code = reserve(writer, spool_encoded_size(record), error);
    writer->filled += spool_encode(record, writer->batch + writer->filled);
    return code;
}

int spool_writer_copy(struct spool_writer *writer, const void *bytes, size_t size, void **record,
                      struct mp_error *error) {
    int code = reserve(writer, size, error);
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
