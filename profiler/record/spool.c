#include "profiler/record/spool.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/format.h"

struct mp_spool_reader {
    FILE *file;
    char *path;
    struct mp_spool_header header;
    bool ended;
    size_t unread;
    uint64_t digest;
    uint8_t *buffer;       /* BUFFER_SIZE bytes of the file: */
    size_t at, filled;     /* those from `at` to `filled` come next */
    const uint8_t *record; /* the one read last; in the buffer, aligned like it */
};

enum { BUFFER_SIZE = SPOOL_RECORD_LIMIT + SPOOL_UNIT };

/* What one attempt to read a record came to. */
enum outcome { WHOLE, DAMAGED, END, FAILED };

/* Has `wanted` bytes in the buffer, or as many as the file has; returns how many that are. */
static size_t fill(struct mp_spool_reader *reader, size_t wanted) {
    size_t left = reader->filled - reader->at;
    if (left < wanted) {
        memmove(reader->buffer, reader->buffer + reader->at, left);
        reader->at = 0;
        reader->filled = left + fread(reader->buffer + left, 1, BUFFER_SIZE - left, reader->file);
        left = reader->filled;
    }
    return left < wanted ? left : wanted;
}

/* Finds the next record and goes behind it if it is whole.  `got` becomes what there is of it, also
 * if it is cut off. */
static enum outcome read_record(struct mp_spool_reader *reader, size_t *got) {
    *got = fill(reader, sizeof(struct spool_head));
    reader->record = reader->buffer + reader->at;
    if (*got < sizeof(struct spool_head))
        return ferror(reader->file) ? FAILED : *got ? DAMAGED : END;
    size_t size =
        (size_t)((const struct spool_head *)(const void *)reader->record)->size * SPOOL_UNIT;
    if (size < sizeof(struct spool_head))
        return DAMAGED;
    *got = fill(reader, size);
    reader->record = reader->buffer + reader->at;
    if (*got < size)
        return ferror(reader->file) ? FAILED : DAMAGED;
    const struct spool_head *head = (const void *)reader->record;
    if (spool_check(head) != head->check)
        return DAMAGED;
    reader->at += size;
    reader->digest =
        (reader->digest ^ head->check ^ (uint64_t)head->size << 32) * 0x9e3779b97f4a7c15u;
    reader->digest ^= reader->digest >> 32;
    return WHOLE;
}

static int fail_reading(const struct mp_spool_reader *reader, struct mp_error *error) {
    return mp_fail_errno(error, "%s: cannot read the spool", reader->path);
}

static int read_header(struct mp_spool_reader *reader, struct mp_error *error) {
    size_t got;
    enum outcome outcome = read_record(reader, &got);
    if (outcome == FAILED)
        return fail_reading(reader, error);

    const struct spool_head *head = (const void *)reader->record;
    const struct mp_spool_header *payload = (const void *)(reader->record + sizeof *head);
    if (got < sizeof *head + sizeof payload->magic || head->type != MP_SPOOL_HEADER ||
        memcmp(payload->magic, SPOOL_MAGIC, sizeof payload->magic) != 0)
        return mp_fail(error, MP_EFORMAT,
                       "%s: not a spool: it does not start with a header of magic \"%s\"",
                       reader->path, SPOOL_MAGIC);
    if (outcome != WHOLE)
        return mp_fail(error, MP_EFORMAT, "%s: the header is cut off or damaged", reader->path);
    if (got < sizeof *head + offsetof(struct mp_spool_header, rank))
        return mp_fail(error, MP_EFORMAT, "%s: the header ends before its version", reader->path);
    if (payload->version != MP_SPOOL_VERSION)
        return mp_fail(error, MP_EVERSION,
                       "%s: a spool of version %d, and this build reads version %d", reader->path,
                       payload->version, MP_SPOOL_VERSION);
    if (got < sizeof *head + sizeof *payload)
        return mp_fail(error, MP_EFORMAT, "%s: a header of %zu bytes, and version %d has %zu",
                       reader->path, got, MP_SPOOL_VERSION, sizeof *head + sizeof *payload);

    reader->header = *payload;
    reader->header.host[sizeof reader->header.host - 1] = '\0';
    return MP_OK;
}

int mp_spool_open(const char *path, struct mp_spool_reader **reader, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *opened = mp_new(1, sizeof *opened);
    if (opened) {
        opened->path = strdup(path);
        opened->buffer = malloc(BUFFER_SIZE);
    }
    if (!opened || !opened->path || !opened->buffer)
        return mp_no_memory(error);
    opened->file = fopen(path, "rbe");
    if (!opened->file)
        return mp_fail_errno(error, "%s: cannot open the spool", path);
    MP_TRY(read_header(opened, error));
    *reader = opened;
    opened = NULL;
    return MP_OK;
}

void mp_spool_close(struct mp_spool_reader *reader) {
    if (!reader)
        return;
    if (reader->file)
        fclose(reader->file);
    free(reader->buffer);
    free(reader->path);
    free(reader);
}

const struct mp_spool_header *mp_spool_header(const struct mp_spool_reader *reader) {
    return &reader->header;
}

uint64_t mp_spool_digest(const struct mp_spool_reader *reader) {
    return reader->digest;
}

size_t mp_spool_unread(const struct mp_spool_reader *reader) {
    return reader->unread;
}

const void *mp_spool_bytes(const struct mp_spool_reader *reader, size_t *size) {
    const struct spool_head *head = (const void *)reader->record;
    *size = (size_t)head->size * SPOOL_UNIT;
    return head;
}

/* Counts the rest of the file. */
static int stop(struct mp_spool_reader *reader, struct mp_error *error) {
    size_t got = reader->filled - reader->at;
    reader->ended = true;
    while (got > 0) {
        reader->unread += got;
        got = fread(reader->buffer, 1, BUFFER_SIZE, reader->file);
    }
    return ferror(reader->file) ? fail_reading(reader, error) : 0;
}

int mp_spool_next(struct mp_spool_reader *reader, struct mp_spool_record *record,
                  struct mp_error *error) {
    while (!reader->ended) {
        size_t got;
        enum outcome outcome = read_record(reader, &got);
        if (outcome == FAILED) {
            reader->ended = true;
            return fail_reading(reader, error);
        }
        if (outcome != WHOLE)
            return stop(reader, error);

        const struct spool_head *head = (const void *)reader->record;
        if (!spool_knows(head->type) || head->type == MP_SPOOL_HEADER) /* nothing in mid-file */
            continue;
        record->type = head->type;
        if (spool_decode(reader->record + sizeof *head, got - sizeof *head, record))
            return 1;
        /* A right check on contents that cannot be: written by something else, so not trusted. */
        reader->at -= got;
        return stop(reader, error);
    }
    return 0;
}
