/* Spools of arbitrary bytes: the reader ends, stays within the file, and accounts for every byte.
 *
 * Random bytes never have a right check.  An even first byte therefore asks for all checks to be
 * filled in, so that the payloads' decoders are reached; the rest of the input is the file. */
#include <string.h>

#include "profiler/nvtx/payload.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/spool_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static struct mp_schemas *schemas; /* of the file */
static volatile uint64_t sum;      /* of what was read, so that the reads are made */

static uint64_t touch_range(const struct mp_spool_record *record) {
    struct mp_range_payload payload;
    const uint8_t *at = record->as.range.payload;
    size_t left = record->as.range.payload_bytes;
    uint64_t seen = record->as.range.is.value;
    for (int i = 0; i < record->as.range.is.payloads; i++) {
        expect(mp_range_next_payload(&at, &left, &payload), "a payload that was promised");
        for (size_t b = 0; b < payload.size; b++)
            seen += payload.bytes[b];
    }
    char json[512];
    int64_t skipped[MP_SKIPS] = {0};
    int64_t number = 0;
    size_t length = mp_payload_json(schemas, record, skipped, json, sizeof json);
    expect(length == 0 || (json[0] == '[' && json[length - 1] == ']' && !json[length]), "JSON");
    mp_payload_number(schemas, record, "a", &number);
    mp_payload_number(schemas, record, "a.a[1].a", &number);
    mp_payload_number(schemas, record, NULL, &number);
    return seen + (uint64_t)number;
}

static uint64_t touch_name(const struct mp_spool_record *record) {
    size_t length = strlen(record->as.name.text);
    char *printable = malloc(4 * length + 1);
    expect(printable != NULL, "malloc");
    expect(strlen(mp_printable_name(record->as.name.text, printable)) >= length, "a name shrinks");
    free(printable);
    return length;
}

static uint64_t touch_schema(const struct mp_spool_record *record) {
    struct mp_schema_entry entry;
    const uint8_t *at = record->as.schema.entry;
    size_t left = record->as.schema.entry_bytes;
    uint64_t seen = strlen(record->as.schema.name);
    for (uint32_t i = 0; i < record->as.schema.entries; i++) {
        expect(mp_schema_next_entry(&at, &left, &entry), "an entry that was promised");
        seen += strlen(entry.name) + entry.type;
    }
    expect(mp_schemas_add(schemas, record, NULL) == MP_OK, "no memory for a schema");
    return seen;
}

/* Reads every byte that a record says it has; returns a sum of them or of their lengths. */
static uint64_t touch(const struct mp_spool_record *record) {
    uint64_t routes = 0;
    switch (record->type) {
    case MP_SPOOL_STREAM:
        expect(record->as.stream.stream >= 0 && record->as.stream.stream < 64, "stream number");
        return strlen(record->as.stream.name);
    case MP_SPOOL_LOAD:
        expect(record->as.load.experts >= 0, "experts");
        for (int e = 0; e < record->as.load.experts; e++)
            routes += record->as.load.routes[e] +
                      (record->as.load.dropped ? record->as.load.dropped[e] : 0);
        return routes;
    case MP_SPOOL_CHOICES:
        expect(record->as.choices.count >= 0 && record->as.choices.top_k > 0, "choices");
        for (int i = 0; i < record->as.choices.count * record->as.choices.width; i++)
            routes += record->as.choices.expert[i];
        return routes;
    case MP_SPOOL_NUMBER:
        return strlen(record->as.number.name);
    case MP_SPOOL_TEXT:
        return strlen(record->as.text.name) + strlen(record->as.text.value);
    case MP_SPOOL_END:
        return strlen(record->as.end.reason);
    case MP_SPOOL_NAME:
        return touch_name(record);
    case MP_SPOOL_RANGE:
        return touch_range(record);
    case MP_SPOOL_SCHEMA:
        return touch_schema(record);
    case MP_SPOOL_ACTIVITY:
        return record->as.activity.local_total;
    case MP_SPOOL_COLLECTIVE:
        return record->as.collective.is_pair;
    case MP_SPOOL_TIMER:
        return (uint64_t)record->as.timer.samples;
    default:
        expect(record->type == MP_SPOOL_SPAN || record->type == MP_SPOOL_CLOCK, "type");
        return 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size == 0)
        return 0;
    uint8_t *bytes = malloc(size);
    expect(bytes != NULL, "malloc");
    memcpy(bytes, input + 1, size - 1);
    if (input[0] % 2 == 0)
        spool_fill_in_checks(bytes, size - 1);

    struct mp_error error = {0};
    struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    int code = mp_spool_open(input_file(bytes, size - 1), &reader, &error);
    free(bytes);
    expect_sentence(code, &error);
    expect(!reader == (code != MP_OK), "a reader or an error");
    if (code != MP_OK)
        return 0;
    sum += strlen(mp_spool_header(reader)->host);
    size_t records = 1;
    expect(mp_schemas_create(&schemas, &error) == MP_OK, "no memory for schemas");
    while ((code = mp_spool_next(reader, &record, &error)) == 1) {
        sum += touch(&record);
        records++;
    }
    expect(code == MP_OK, "the end is no error");
    expect(mp_spool_unread(reader) + records * sizeof(struct spool_head) <= size - 1,
           "more read than there is");
    mp_spool_close(reader);
    mp_schemas_destroy(schemas);
    return 0;
}
