/* What stands in the records of each type: one table for writing and reading. */
#include <string.h>

#include "profiler/record/format.h"

/* What may stand behind a record's fixed part.  In memory there is a pointer to each in its place,
 * in the same order, and behind that of the rest its size. */
enum part { NOTHING, NAME, TEXT, ARRAY, REST };
enum { PARTS = 2 };

#define FIXED(behind)                                                                              \
    (offsetof(struct mp_spool_record, as.behind) - offsetof(struct mp_spool_record, as))

static const struct layout {
    size_t fixed; /* bytes */
    enum part part[PARTS];
} layouts[] = {
    [MP_SPOOL_HEADER] = {sizeof(struct mp_spool_header), {NOTHING}},
    [MP_SPOOL_STREAM] = {FIXED(stream.name), {NAME}},
    [MP_SPOOL_SPAN] = {sizeof(struct mp_span), {NOTHING}},
    [MP_SPOOL_LOAD] = {FIXED(load.routes), {ARRAY, ARRAY}},
    [MP_SPOOL_NUMBER] = {FIXED(number.name), {NAME}},
    [MP_SPOOL_TEXT] = {0, {NAME, TEXT}},
    [MP_SPOOL_CLOCK] = {3 * sizeof(int64_t), {NOTHING}},
    [MP_SPOOL_END] = {FIXED(end.reason), {TEXT}},
    [MP_SPOOL_NAME] = {FIXED(name.text), {TEXT}},
    [MP_SPOOL_RANGE] = {FIXED(range.payload), {REST}},
    [MP_SPOOL_SCHEMA] = {FIXED(schema.name), {TEXT, REST}},
    [MP_SPOOL_CHOICES] = {FIXED(choices.expert), {ARRAY}},
    [MP_SPOOL_ACTIVITY] = {sizeof(struct mp_activity), {NOTHING}},
    [MP_SPOOL_COLLECTIVE] = {sizeof(struct mp_collective), {NOTHING}},
    [MP_SPOOL_TIMER] = {sizeof(struct mp_timer), {NOTHING}},
};

_Static_assert(sizeof(struct mp_spool_header) == 112, "HEADER");
_Static_assert(offsetof(struct mp_spool_header, version) == 8, "HEADER version");
_Static_assert(FIXED(stream.name) == 8, "STREAM");
_Static_assert(offsetof(struct mp_span, iteration) == 56, "SPAN iteration");
_Static_assert(offsetof(struct mp_span, phase) == 62, "SPAN phase");
_Static_assert(FIXED(load.routes) == SPOOL_LOAD_FIXED, "LOAD");
_Static_assert(FIXED(number.name) == 24, "NUMBER");
_Static_assert(FIXED(end.reason) == 8, "END");
_Static_assert(FIXED(name.text) == 16, "NAME");
_Static_assert(FIXED(range.payload) == 56, "RANGE");
_Static_assert(FIXED(schema.name) == 32, "SCHEMA");
_Static_assert(FIXED(choices.expert) == SPOOL_CHOICES_FIXED, "CHOICES");

bool spool_knows(unsigned type) {
    return type < sizeof layouts / sizeof *layouts &&
           (layouts[type].fixed > 0 || layouts[type].part[0] != NOTHING);
}

size_t spool_cut(const char *text, size_t limit) {
    size_t length = strnlen(text, limit + 1);
    if (length <= limit)
        return length;
    length = limit;
    while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
        length--;
    return length;
}

/* ---- parts ---- */

/* Where the pointer to a part stands, and behind it the size of a rest. */
static void *place_of(const struct mp_spool_record *record, int part) {
    return (char *)(uintptr_t)&record->as + layouts[record->type].fixed +
           (size_t)part * sizeof(void *);
}

static bool has_part(const struct mp_spool_record *record, int part) {
    return part == 0 || record->type != MP_SPOOL_LOAD || record->as.load.has_dropped;
}

static size_t array_bytes(const struct mp_spool_record *record) {
    return record->type == MP_SPOOL_LOAD
               ? (size_t)record->as.load.experts * sizeof *record->as.load.routes
               : (size_t)record->as.choices.count * (size_t)record->as.choices.width;
}

/* Bytes of a part, without the zero that ends a text. */
static size_t part_of(const struct mp_spool_record *record, int part, const void **bytes) {
    const enum part kind = layouts[record->type].part[part];
    size_t size = 0;
    if (kind == NOTHING)
        return 0;
    memcpy(bytes, place_of(record, part), sizeof *bytes);
    switch (kind) {
    case NAME:
        return spool_cut(*bytes, SPOOL_NAME_LIMIT);
    case TEXT:
        return spool_cut(*bytes, SPOOL_TEXT_LIMIT);
    case ARRAY:
        return has_part(record, part) ? array_bytes(record) : 0;
    case REST:
        memcpy(&size, place_of(record, part + 1), sizeof size);
        return size;
    default:
        return 0;
    }
}

static bool is_text(enum part part) {
    return part == NAME || part == TEXT;
}

/* ---- writing ---- */

size_t spool_encoded_size(const struct mp_spool_record *record) {
    const struct layout *layout = &layouts[record->type];
    const void *bytes;
    size_t size = sizeof(struct spool_head) + layout->fixed;
    for (int p = 0; p < PARTS; p++)
        size += part_of(record, p, &bytes) + is_text(layout->part[p]);
    return (size + SPOOL_UNIT - 1) / SPOOL_UNIT * SPOOL_UNIT;
}

size_t spool_encode(const struct mp_spool_record *record, void *to) {
    const struct layout *layout = &layouts[record->type];
    const size_t size = spool_encoded_size(record);
    uint8_t *at = (uint8_t *)to + sizeof(struct spool_head);
    memset((uint8_t *)to + size - SPOOL_UNIT, 0, SPOOL_UNIT);
    *(struct spool_head *)to =
        (struct spool_head){.type = (uint16_t)record->type, .size = (uint16_t)(size / SPOOL_UNIT)};
    memcpy(at, &record->as, layout->fixed);
    at += layout->fixed;
    for (int p = 0; p < PARTS; p++) {
        const void *bytes = NULL;
        const size_t length = part_of(record, p, &bytes);
        if (length > 0 && bytes)
            memcpy(at, bytes, length);
        at += length;
        if (is_text(layout->part[p]))
            *at++ = '\0';
    }
    return size;
}

bool mp_schema_put_entry(uint8_t **at, size_t *left, const struct mp_schema_entry *entry) {
    const size_t fixed = offsetof(struct mp_schema_entry, name), length = strlen(entry->name) + 1;
    if (*left < fixed + length)
        return false;
    memcpy(*at, entry, fixed);
    memcpy(*at + fixed, entry->name, length);
    *at += fixed + length;
    *left -= fixed + length;
    return true;
}

/* ---- reading ---- */

/* The bytes of a payload that have not been taken yet. */
struct payload {
    const uint8_t *at;
    size_t left;
};

/* Goes behind so many bytes; NULL: there are fewer. */
static const void *take(struct payload *payload, size_t size) {
    const uint8_t *at = payload->at;
    if (payload->left < size)
        return NULL;
    payload->at += size;
    payload->left -= size;
    return at;
}

/* NULL: it has no end within the payload. */
static const char *take_text(struct payload *payload) {
    const uint8_t *end = payload->left ? memchr(payload->at, '\0', payload->left) : NULL;
    return end ? take(payload, (size_t)(end + 1 - payload->at)) : NULL;
}

/* Finds a part, whose pointer, and size, it sets; arrays are aligned because every record and fixed
 * part is. */
static bool find_part(struct payload *payload, struct mp_spool_record *record, int part) {
    const enum part kind = layouts[record->type].part[part];
    const size_t left = payload->left;
    const void *found = NULL;
    if (is_text(kind))
        found = take_text(payload);
    else if (has_part(record, part))
        found = take(payload, kind == REST ? left : array_bytes(record));
    memcpy(place_of(record, part), &found, sizeof found);
    if (kind == REST)
        memcpy(place_of(record, part + 1), &left, sizeof left);
    return found || !has_part(record, part);
}

/* Whether numbers that say what follows are such. */
static bool is_possible(const struct mp_spool_record *record) {
    switch (record->type) {
    case MP_SPOOL_STREAM:
        return record->as.stream.stream >= 0 && record->as.stream.stream < SPOOL_STREAMS;
    case MP_SPOOL_LOAD:
        return record->as.load.experts >= 0 && record->as.load.experts <= SPOOL_RECORD_LIMIT;
    case MP_SPOOL_CHOICES:
        return (record->as.choices.width == 2 || record->as.choices.width == 4) &&
               record->as.choices.top_k >= 1 && record->as.choices.count >= 0;
    default:
        return true;
    }
}

/* Whether the rest has as many payloads, or entries, as were promised. */
static bool is_whole(const struct mp_spool_record *record) {
    struct mp_range_payload payload;
    struct mp_schema_entry entry;
    if (record->type == MP_SPOOL_RANGE) {
        struct payload rest = {record->as.range.payload, record->as.range.payload_bytes};
        for (int i = 0; i < record->as.range.is.payloads; i++)
            if (!mp_range_next_payload(&rest.at, &rest.left, &payload))
                return false;
    } else if (record->type == MP_SPOOL_SCHEMA) {
        struct payload rest = {record->as.schema.entry, record->as.schema.entry_bytes};
        for (uint32_t i = 0; i < record->as.schema.entries; i++)
            if (!mp_schema_next_entry(&rest.at, &rest.left, &entry))
                return false;
    }
    return true;
}

bool spool_decode(const uint8_t *bytes, size_t size, struct mp_spool_record *record) {
    const struct layout *layout = &layouts[record->type];
    struct payload payload = {bytes, size};
    const void *fixed = take(&payload, layout->fixed);
    if (!fixed)
        return false;
    memcpy(&record->as, fixed, layout->fixed);
    if (!is_possible(record))
        return false;
    for (int p = 0; p < PARTS && layout->part[p] != NOTHING; p++)
        if (!find_part(&payload, record, p))
            return false;
    return is_whole(record);
}

bool mp_range_next_payload(const uint8_t **at, size_t *left, struct mp_range_payload *payload) {
    struct spool_blob_head head;
    struct payload rest = {*at, *left};
    const void *fixed = take(&rest, sizeof head);
    if (!fixed)
        return false;
    memcpy(&head, fixed, sizeof head);
    if (rest.left < head.size)
        return false;
    size_t padded = ((size_t)head.size + SPOOL_UNIT - 1) / SPOOL_UNIT * SPOOL_UNIT;
    *payload = (struct mp_range_payload){head.schema, rest.at, head.size};
    padded = padded < rest.left ? padded : rest.left;
    *at = rest.at + padded;
    *left = rest.left - padded;
    return true;
}

bool mp_schema_next_entry(const uint8_t **at, size_t *left, struct mp_schema_entry *entry) {
    struct payload rest = {*at, *left};
    const void *fixed = take(&rest, offsetof(struct mp_schema_entry, name));
    const char *name = fixed ? take_text(&rest) : NULL;
    if (!name)
        return false;
    memcpy(entry, fixed, offsetof(struct mp_schema_entry, name));
    entry->name = name;
    *at = rest.at;
    *left = rest.left;
    return true;
}
