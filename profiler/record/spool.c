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
        opened->buffer = malloc(BUFFER_SIZE);
    }
    if (!opened || !opened->path || !opened->buffer) {
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

static bool decode_choices(struct payload *payload, struct mp_spool_record *record) {
    struct spool_choices_payload fixed;
    if (!take(payload, &fixed, sizeof fixed) || (fixed.width != 2 && fixed.width != 4) ||
        fixed.top_k < 1 || fixed.top_k > INT32_MAX || payload->left / fixed.width < fixed.count)
        return false;
    record->as.choices.iteration = fixed.iteration;
    record->as.choices.layer = fixed.layer;
    record->as.choices.first = fixed.first;
    record->as.choices.top_k = (int)fixed.top_k;
    record->as.choices.count = (int)fixed.count;
    record->as.choices.width = (int)fixed.width;
    record->as.choices.expert = payload->at;
    return true;
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

static bool decode_name(struct payload *payload, struct mp_spool_record *record) {
    struct spool_name_payload fixed;
    if (!take(payload, &fixed, sizeof fixed))
        return false;
    record->as.name.id = fixed.id;
    record->as.name.kind = fixed.kind;
    record->as.name.domain = fixed.domain;
    record->as.name.number = fixed.number;
    return take_string(payload, &record->as.name.text);
}

static bool decode_range(struct payload *payload, struct mp_spool_record *record) {
    if (!take(payload, &record->as.range.is, sizeof record->as.range.is))
        return false;
    record->as.range.payload = payload->at;
    record->as.range.payload_bytes = payload->left;
    struct mp_range_payload one;
    const uint8_t *at = payload->at;
    size_t left = payload->left;
    for (int i = 0; i < record->as.range.is.payloads; i++)
        if (!mp_range_next_payload(&at, &left, &one))
            return false;
    return true;
}

static bool decode_schema(struct payload *payload, struct mp_spool_record *record) {
    struct spool_schema_payload fixed;
    if (!take(payload, &fixed, sizeof fixed) || !take_string(payload, &record->as.schema.name))
        return false;
    record->as.schema.id = fixed.id;
    record->as.schema.domain = fixed.domain;
    record->as.schema.type = fixed.type;
    record->as.schema.bytes = fixed.bytes;
    record->as.schema.entries = fixed.entries;
    record->as.schema.pack = fixed.pack;
    record->as.schema.entry = payload->at;
    record->as.schema.entry_bytes = payload->left;
    struct mp_schema_entry entry;
    const uint8_t *at = payload->at;
    size_t left = payload->left;
    for (uint32_t i = 0; i < fixed.entries; i++)
        if (!mp_schema_next_entry(&at, &left, &entry))
            return false;
    return true;
}

bool mp_range_next_payload(const uint8_t **at, size_t *left, struct mp_range_payload *payload) {
    struct spool_blob_head head;
    struct payload rest = {*at, *left};
    if (!take(&rest, &head, sizeof head) || rest.left < head.size)
        return false;
    size_t padded = ((size_t)head.size + SPOOL_UNIT - 1) / SPOOL_UNIT * SPOOL_UNIT;
    *payload = (struct mp_range_payload){head.schema, rest.at, head.size};
    padded = padded < rest.left ? padded : rest.left;
    *at = rest.at + padded;
    *left = rest.left - padded;
    return true;
}

bool mp_schema_next_entry(const uint8_t **at, size_t *left, struct mp_schema_entry *entry) {
    uint64_t fixed[4];
    struct payload rest = {*at, *left};
    if (!take(&rest, fixed, sizeof fixed) || !take_string(&rest, &entry->name))
        return false;
    entry->flags = fixed[0];
    entry->type = fixed[1];
    entry->count = fixed[2];
    entry->offset = fixed[3];
    *at = rest.at;
    *left = rest.left;
    return true;
}

static bool decode_activity(struct payload *payload, struct mp_spool_record *record) {
    return take(payload, &record->as.activity, sizeof record->as.activity);
}

static bool decode_collective(struct payload *payload, struct mp_spool_record *record) {
    return take(payload, &record->as.collective, sizeof record->as.collective);
}

static bool decode_timer(struct payload *payload, struct mp_spool_record *record) {
    return take(payload, &record->as.timer, sizeof record->as.timer);
}

typedef bool (*decoder)(struct payload *payload, struct mp_spool_record *record);

/* No decoder: a type of a later build, or a header, which means nothing in mid-file. */
static const decoder decoders[] = {
    [MP_SPOOL_STREAM] = decode_stream,     [MP_SPOOL_SPAN] = decode_span,
    [MP_SPOOL_LOAD] = decode_load,         [MP_SPOOL_NUMBER] = decode_number,
    [MP_SPOOL_TEXT] = decode_text,         [MP_SPOOL_CLOCK] = decode_clock,
    [MP_SPOOL_END] = decode_end,           [MP_SPOOL_NAME] = decode_name,
    [MP_SPOOL_RANGE] = decode_range,       [MP_SPOOL_SCHEMA] = decode_schema,
    [MP_SPOOL_ACTIVITY] = decode_activity, [MP_SPOOL_COLLECTIVE] = decode_collective,
    [MP_SPOOL_TIMER] = decode_timer,       [MP_SPOOL_CHOICES] = decode_choices,
};

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
        decoder decode = NULL;
        if (head->type < sizeof decoders / sizeof *decoders)
            decode = decoders[head->type];
        if (!decode)
            continue;
        struct payload payload = {reader->record + sizeof *head, got - sizeof *head};
        record->type = head->type;
        if (decode(&payload, record))
            return 1;
        /* A right check on contents that cannot be: written by something else, so not trusted. */
        reader->at -= got;
        return stop(reader, error);
    }
    return 0;
}
