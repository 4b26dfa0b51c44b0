#include "profiler/record/spool.h"

#include <errno.h>
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
    uint8_t *record; /* SPOOL_RECORD_LIMIT bytes: the record read last */
};

/* What one attempt to read a record came to. */
enum outcome { WHOLE, DAMAGED, END, FAILED };

/* Reads the next record into reader->record.  `got` becomes the bytes that were taken from the
 * file, also of a record that is cut off. */
static enum outcome read_record(struct mp_spool_reader *reader, size_t *got) {
    struct spool_head *head = (void *)reader->record;
    *got = fread(reader->record, 1, sizeof *head, reader->file);
    if (*got < sizeof *head)
        return ferror(reader->file) ? FAILED : *got ? DAMAGED : END;
    size_t size = (size_t)head->size * SPOOL_UNIT;
    if (size < sizeof *head)
        return DAMAGED;
    *got += fread(reader->record + *got, 1, size - *got, reader->file);
    if (*got < size)
        return ferror(reader->file) ? FAILED : DAMAGED;
    return spool_check(head) == head->check ? WHOLE : DAMAGED;
}

static int fail_reading(const struct mp_spool_reader *reader, struct mp_error *error) {
    return mp_fail(error, MP_EIO, "%s: cannot read the spool: %s", reader->path, strerror(errno));
}

static int read_header(struct mp_spool_reader *reader, struct mp_error *error) {
    size_t got;
    enum outcome outcome = read_record(reader, &got);
    if (outcome == FAILED)
        return fail_reading(reader, error);

    const struct spool_head *head = (const void *)reader->record;
    const struct spool_header_payload *payload = (const void *)(reader->record + sizeof *head);
    if (got < sizeof *head + sizeof payload->magic || head->type != MP_SPOOL_HEADER ||
        memcmp(payload->magic, SPOOL_MAGIC, sizeof payload->magic) != 0)
        return mp_fail(error, MP_EFORMAT,
                       "%s: not a spool: it does not start with a header of magic \"%s\"",
                       reader->path, SPOOL_MAGIC);
    if (outcome != WHOLE)
        return mp_fail(error, MP_EFORMAT, "%s: the header is cut off or damaged", reader->path);
    if (got < sizeof *head + offsetof(struct spool_header_payload, rank))
        return mp_fail(error, MP_EFORMAT, "%s: the header ends before its version", reader->path);
    if (payload->version != MP_SPOOL_VERSION)
        return mp_fail(error, MP_EVERSION,
                       "%s: a spool of version %u, and this build reads version %d", reader->path,
                       payload->version, MP_SPOOL_VERSION);
    if (got < sizeof *head + sizeof *payload)
        return mp_fail(error, MP_EFORMAT, "%s: a header of %zu bytes, and version %d has %zu",
                       reader->path, got, MP_SPOOL_VERSION, sizeof *head + sizeof *payload);

    reader->header = (struct mp_spool_header){.version = (int)payload->version,
                                              .rank = payload->rank,
                                              .ranks = payload->ranks,
                                              .node = payload->node,
                                              .pid = payload->pid,
                                              .realtime_ns = payload->realtime_ns,
                                              .monotonic_ns = payload->monotonic_ns};
    memcpy(reader->header.host, payload->host, sizeof reader->header.host - 1);
    return MP_OK;
}

int mp_spool_open(const char *path, struct mp_spool_reader **reader, struct mp_error *error) {
    int code = MP_OK;
    struct mp_spool_reader *opened = calloc(1, sizeof *opened);
    if (opened) {
        opened->path = strdup(path);
        opened->record = malloc(SPOOL_RECORD_LIMIT);
    }
    if (!opened || !opened->path || !opened->record) {
        code = mp_fail(error, MP_ENOMEM, "%s: no memory to read the spool", path);
        goto cleanup;
    }
    opened->file = fopen(path, "rbe");
    if (!opened->file) {
        code = mp_fail(error, errno == ENOENT ? MP_ENOTFOUND : MP_EIO,
                       "%s: cannot open the spool: %s", path, strerror(errno));
        goto cleanup;
    }
    code = read_header(opened, error);
    if (code)
        goto cleanup;
    *reader = opened;
    opened = NULL;

cleanup:
    mp_spool_close(opened);
    return code;
}

void mp_spool_close(struct mp_spool_reader *reader) {
    if (!reader)
        return;
    if (reader->file)
        fclose(reader->file);
    free(reader->record);
    free(reader->path);
    free(reader);
}

const struct mp_spool_header *mp_spool_header(const struct mp_spool_reader *reader) {
    return &reader->header;
}

size_t mp_spool_unread(const struct mp_spool_reader *reader) {
    return reader->unread;
}

/* ---- payloads ---- */

/* The bytes of a payload that have not been taken yet. */
struct payload {
    const uint8_t *at;
    size_t left;
};

/* Copies the fixed part; false when the payload is shorter. */
static bool take(struct payload *payload, void *fixed, size_t size) {
    if (payload->left < size)
        return false;
    memcpy(fixed, payload->at, size);
    payload->at += size;
    payload->left -= size;
    return true;
}

/* Borrows a string; false when it has no end within the payload. */
static bool take_string(struct payload *payload, const char **text) {
    const uint8_t *end = payload->left ? memchr(payload->at, '\0', payload->left) : NULL;
    if (!end)
        return false;
    *text = (const char *)payload->at;
    payload->left -= (size_t)(end + 1 - payload->at);
    payload->at = end + 1;
    return true;
}

/* Borrows `count` numbers; they are aligned because every record and fixed part is. */
static bool take_counts(struct payload *payload, size_t count, const uint32_t **counts) {
    if (payload->left / sizeof **counts < count)
        return false;
    *counts = (const void *)payload->at;
    payload->at += count * sizeof **counts;
    payload->left -= count * sizeof **counts;
    return true;
}

static bool decode_stream(struct payload *payload, struct mp_spool_record *record) {
    struct spool_stream_payload fixed;
    if (!take(payload, &fixed, sizeof fixed) || fixed.stream < 0 || fixed.stream >= SPOOL_STREAMS)
        return false;
    record->as.stream.stream = fixed.stream;
    return take_string(payload, &record->as.stream.name);
}

static bool decode_span(struct payload *payload, struct mp_spool_record *record) {
    return take(payload, &record->as.span, sizeof record->as.span);
}

static bool decode_load(struct payload *payload, struct mp_spool_record *record) {
    struct spool_load_payload fixed;
    if (!take(payload, &fixed, sizeof fixed) || fixed.experts > SPOOL_RECORD_LIMIT)
        return false;
    record->as.load.iteration = fixed.iteration;
    record->as.load.layer = fixed.layer;
    record->as.load.experts = (int)fixed.experts;
    record->as.load.dropped = NULL;
    return take_counts(payload, fixed.experts, &record->as.load.routes) &&
           (!fixed.has_dropped || take_counts(payload, fixed.experts, &record->as.load.dropped));
}

static bool decode_number(struct payload *payload, struct mp_spool_record *record) {
    struct spool_number_payload fixed;
    if (!take(payload, &fixed, sizeof fixed))
        return false;
    record->as.number.iteration = fixed.iteration;
    record->as.number.layer = fixed.layer;
    record->as.number.value = fixed.value;
    return take_string(payload, &record->as.number.name);
}

static bool decode_text(struct payload *payload, struct mp_spool_record *record) {
    return take_string(payload, &record->as.text.name) &&
           take_string(payload, &record->as.text.value);
}

static bool decode_clock(struct payload *payload, struct mp_spool_record *record) {
    struct spool_clock_payload fixed;
    if (!take(payload, &fixed, sizeof fixed))
        return false;
    record->as.clock.at_ns = fixed.at_ns;
    record->as.clock.offset_ns = fixed.offset_ns;
    record->as.clock.error_ns = fixed.error_ns;
    return true;
}

static bool decode_end(struct payload *payload, struct mp_spool_record *record) {
    struct spool_end_payload fixed;
    if (!take(payload, &fixed, sizeof fixed))
        return false;
    record->as.end.status = fixed.status;
    return take_string(payload, &record->as.end.reason);
}

typedef bool (*decoder)(struct payload *payload, struct mp_spool_record *record);

/* No decoder: a type of a later build, or a header, which means nothing in mid-file. */
static const decoder decoders[] = {
    [MP_SPOOL_STREAM] = decode_stream, [MP_SPOOL_SPAN] = decode_span,
    [MP_SPOOL_LOAD] = decode_load,     [MP_SPOOL_NUMBER] = decode_number,
    [MP_SPOOL_TEXT] = decode_text,     [MP_SPOOL_CLOCK] = decode_clock,
    [MP_SPOOL_END] = decode_end,
};

/* Counts the rest of the file, of which `got` bytes have been read. */
static int stop(struct mp_spool_reader *reader, size_t got, struct mp_error *error) {
    reader->ended = true;
    while (got > 0) {
        reader->unread += got;
        got = fread(reader->record, 1, SPOOL_RECORD_LIMIT, reader->file);
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
            return stop(reader, got, error);

        const struct spool_head *head = (const void *)reader->record;
        decoder decode = NULL;
        if (head->type < sizeof decoders / sizeof *decoders)
            decode = decoders[head->type];
        if (!decode)
            continue;
        struct payload payload = {reader->record + sizeof *head, got - sizeof *head};
        record->type = head->type;
        /* A right check on contents that cannot be: written by something else, so not trusted. */
        return decode(&payload, record) ? 1 : stop(reader, got, error);
    }
    return 0;
}
