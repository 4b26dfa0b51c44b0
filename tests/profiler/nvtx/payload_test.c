/* Payloads by their schemas: schemas inside schemas, arrays, and schemas that are wrong in any way.
 */
#include <jansson.h>

#include "profiler/nvtx/payload.h"
#include "profiler/record/format.h"
#include "tests/errors.h"

/* NVTX's numbers (nvToolsExtPayload.h), as NVTX's headers need not be here. */
enum {
    CHAR = 1,
    INT32 = 15,
    UINT32 = 16,
    INT64 = 17,
    DOUBLE = 20,
    CSTRING = 75,
    POINTER = 1 << 1,
    FROM_BASE = 1 << 2,
    FIXED = 1 << 4,
    ZERO_ENDED = 2 << 4,
    LENGTH_INDEX = 3 << 4,
    STATIC = 1,
    DYNAMIC = 2,
    UNION = 3,
    OWN = 1 << 24 /* ids of schemas that programs choose */
};

enum { ENTRY_BYTES = 1 << 14, PAYLOAD_BYTES = 512, JSON_BYTES = 4096 };

static void add(struct mp_schemas *schemas, uint64_t id, uint32_t type, uint64_t bytes,
                uint32_t pack, const struct mp_schema_entry entry[], int entries) {
    static uint8_t text[ENTRY_BYTES];
    uint8_t *at = text;
    size_t left = sizeof text;
    for (int i = 0; i < entries; i++)
        assert_true(mp_schema_put_entry(&at, &left, &entry[i]));
    const struct mp_spool_record record = {.type = MP_SPOOL_SCHEMA,
                                           .as.schema = {.id = id,
                                                         .type = type,
                                                         .bytes = bytes,
                                                         .pack = pack,
                                                         .entries = (uint32_t)entries,
                                                         .name = "",
                                                         .entry = text,
                                                         .entry_bytes = sizeof text - left}};
    assert_works(mp_schemas_add(schemas, &record, &error));
}
#define ADD(schemas, id, type, bytes, entry)                                                       \
    add(schemas, id, type, bytes, 0, entry, sizeof(entry) / sizeof *(entry))

/* A range with one payload, in memory of just its size; free range->as.range.payload. */
static void make_range(struct mp_spool_record *range, uint64_t schema, const void *payload,
                       size_t size, int padding) {
    const struct spool_blob_head head = {.schema = schema, .size = (uint32_t)size};
    size_t whole = sizeof head + (size + 7) / 8 * 8;
    uint8_t *bytes = malloc(whole);
    assert_non_null(bytes);
    memset(bytes, padding, whole);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, payload, size);
    *range = (struct mp_spool_record){.type = MP_SPOOL_RANGE};
    range->as.range.is.payloads = 1;
    range->as.range.payload = bytes;
    range->as.range.payload_bytes = whole;
}

static void assert_json(const struct mp_schemas *schemas, uint64_t schema, const void *payload,
                        size_t size, const char *expected, int64_t skipped[MP_SKIPS]) {
    char json[JSON_BYTES] = "";
    struct mp_spool_record range;
    make_range(&range, schema, payload, size, 0xff);
    memset(skipped, 0, MP_SKIPS * sizeof *skipped);
    mp_payload_json(schemas, &range, skipped, json, sizeof json);
    free((void *)range.as.range.payload);
    assert_string_equal(json, expected);
}

static void assert_number(const struct mp_schemas *schemas, uint64_t schema, const void *payload,
                          size_t size, const char *name, bool found, int64_t expected) {
    struct mp_spool_record range;
    int64_t value = 0;
    make_range(&range, schema, payload, size, 0xff);
    assert_int_equal(mp_payload_number(schemas, &range, name, &value), found);
    free((void *)range.as.range.payload);
    assert_int_equal(value, expected);
}

TEST_END(schemas, struct mp_schemas *, mp_schemas_destroy(*it))

static struct mp_schemas *create(void) {
    struct mp_schemas *schemas = NULL;
    assert_works(mp_schemas_create(&schemas, &error));
    return schemas;
}

/* ---- what can be read ---- */

struct place {
    int32_t node;
    double share;
};
struct message {
    char kind;
    struct place from;
    uint32_t sizes[3];
    struct place to[2];
    char name[6];
    int64_t last;
};
static const struct mp_schema_entry place_entries[] = {{0, INT32, 0, 0, "node"},
                                                       {0, DOUBLE, 0, 0, "share"}};
static const struct mp_schema_entry message_entries[] = {
    {0, CHAR, 0, 0, "kind"},      {0, OWN + 1, 0, 0, "from"}, {FIXED, UINT32, 3, 0, "sizes"},
    {FIXED, OWN + 1, 2, 0, "to"}, {0, CSTRING, 6, 0, "name"}, {0, INT64, 0, 0, "last"}};
static const struct message message = {7, {3, 0.5}, {10, 20, 30}, {{4, 1}, {-5, 2}}, "a\"b", -9};

/* Offsets and the inner schema's size come from natural alignment, as C lays such a struct out; the
 * inner schema may be registered later. */
TEST(schemas_lie_in_schemas) {
    int64_t skipped[MP_SKIPS];
    for (int order = 0; order < 2; order++) {
        AUTO(schemas) struct mp_schemas *schemas = create();
        if (order == 0)
            ADD(schemas, OWN + 1, STATIC, 0, place_entries);
        ADD(schemas, OWN + 2, STATIC, sizeof message, message_entries);
        if (order == 1)
            ADD(schemas, OWN + 1, STATIC, sizeof(struct place), place_entries);
        assert_json(schemas, OWN + 2, &message, sizeof message,
                    "[{\"kind\":7,\"from\":{\"node\":3,\"share\":0.5},\"sizes\":[10,20,30],\"to\":"
                    "[{\"node\":4,\"share\":1},{\"node\":-5,\"share\":2}],\"name\":\"a\\u0022b\","
                    "\"last\":-9}]",
                    skipped);
        for (int i = 0; i < MP_SKIPS; i++)
            assert_int_equal(skipped[i], 0);
        assert_number(schemas, OWN + 2, &message, sizeof message, "last", true, -9);
        assert_number(schemas, OWN + 2, &message, sizeof message, "from.node", true, 3);
        assert_number(schemas, OWN + 2, &message, sizeof message, "sizes[2]", true, 30);
        assert_number(schemas, OWN + 2, &message, sizeof message, "to[1].node", true, -5);
        assert_number(schemas, OWN + 2, &message, sizeof message, "to[2].node", false, 0);
        assert_number(schemas, OWN + 2, &message, sizeof message, "to.node", false, 0);
        assert_number(schemas, OWN + 2, &message, sizeof message, "from", false, 0);
        assert_number(schemas, OWN + 2, &message, sizeof message, "sizes[x]", false, 0);
    }
}

TEST(packed_fields_have_no_gaps) {
    static const struct mp_schema_entry entries[] = {
        {0, CHAR, 0, 0, "a"}, {0, INT64, 0, 0, "b"}, {0, INT32, 0, 0, "c"}};
    struct __attribute__((packed)) {
        char a;
        int64_t b;
        int32_t c;
    } packed = {1, -2, 3};
    int64_t skipped[MP_SKIPS];
    AUTO(schemas) struct mp_schemas *schemas = create();
    add(schemas, OWN + 1, STATIC, sizeof packed, 1, entries, 3);
    assert_json(schemas, OWN + 1, &packed, sizeof packed, "[{\"a\":1,\"b\":-2,\"c\":3}]", skipped);
}

/* The number of elements is another field's value; what follows has no place of its own. */
TEST(arrays_may_have_their_length_in_the_payload) {
    static const struct mp_schema_entry entries[] = {{0, UINT32, 0, 0, "count"},
                                                     {LENGTH_INDEX, UINT32, 0, 0, "values"},
                                                     {0, UINT32, 0, 0, "behind"}};
    static const uint32_t values[] = {3, 7, 8, 9, 1};
    static const uint32_t too_many[] = {5, 7, 8, 9, 1};
    int64_t skipped[MP_SKIPS];
    AUTO(schemas) struct mp_schemas *schemas = create();
    ADD(schemas, OWN + 1, DYNAMIC, 0, entries);
    assert_json(schemas, OWN + 1, values, sizeof values, "[{\"count\":3,\"values\":[7,8,9]}]",
                skipped);
    assert_int_equal(skipped[MP_SKIP_POSITION], 1);
    assert_json(schemas, OWN + 1, too_many, sizeof too_many, "[{\"count\":5}]", skipped);
    assert_int_equal(skipped[MP_SKIP_OUTSIDE], 1);
}

/* ---- what is left out, and why ---- */

TEST(what_is_left_out_is_counted_by_its_reason) {
    static const struct mp_schema_entry pair[] = {{0, INT32, 0, 0, "x"}, {0, DOUBLE, 0, 0, "y"}};
    static const struct mp_schema_entry circle[] = {{0, OWN + 3, 0, 0, "again"},
                                                    {0, INT64, 0, 8, "z"}};
    static const struct mp_schema_entry entries[] = {{POINTER, INT32, 0, 0, "pointer"},
                                                     {0, CSTRING, 0, 0, "also a pointer"},
                                                     {0, OWN + 1, 0, 0, "union"},
                                                     {0, 42, 0, 0, "half"},
                                                     {0, INT32, 0, 0, "seen"},
                                                     {FIXED, INT64, 100, 0, "long"},
                                                     {0, INT32, 0, 32, "again"},
                                                     {ZERO_ENDED, INT32, 0, 0, "open"},
                                                     {0, INT32, 0, 0, "behind"},
                                                     {FROM_BASE, INT32, 0, 0, "elsewhere"},
                                                     {0, OWN + 9, 0, 0, "nobody's"},
                                                     {0, OWN + 3, 0, 0, "circle"},
                                                     {0, INT32, 0, UINT64_MAX - 3, "far"},
                                                     {0, INT32, 0, 36, "end"},
                                                     {0, INT32, 0, 37, "half outside"},
                                                     {0, INT32, 0, 8, ""}};
    int64_t skipped[MP_SKIPS];
    int32_t payload[10] = {0};
    AUTO(schemas) struct mp_schemas *schemas = create();
    payload[7] = 11; /* behind two pointers, a double of the union, and two bytes */
    payload[8] = 12;
    payload[9] = 13;
    ADD(schemas, OWN + 1, UNION, 0, pair);
    ADD(schemas, OWN + 3, STATIC, 16, circle);
    ADD(schemas, OWN + 2, STATIC, 0, entries);
    assert_json(schemas, OWN + 2, payload, sizeof payload,
                "[{\"seen\":11,\"again\":12,\"end\":13}]", skipped);
    assert_numbers(skipped[MP_SKIP_POINTER], 2, skipped[MP_SKIP_UNION], 1);
    assert_numbers(skipped[MP_SKIP_TYPE], 1, skipped[MP_SKIP_LENGTH], 1);
    assert_numbers(skipped[MP_SKIP_OFFSET], 1, skipped[MP_SKIP_SCHEMA], 1);
    assert_int_equal(skipped[MP_SKIP_POSITION], 3); /* behind, circle, far */
    assert_int_equal(skipped[MP_SKIP_OUTSIDE], 2);  /* long, half outside */
    assert_int_equal(skipped[MP_SKIP_NESTING], 0);
    int64_t inner[2] = {0, 5};
    assert_json(schemas, OWN + 3, inner, sizeof inner, "[{\"z\":5}]", skipped);
    assert_int_equal(skipped[MP_SKIP_NESTING], 1);
    for (int i = 0; i < MP_SKIPS; i++)
        assert_true(*mp_payload_skip_name((enum mp_payload_skip)i) != '\0');
}

TEST(a_chain_of_schemas_ends) {
    enum { LEVELS = 16 };
    char expected[16 * LEVELS] = "[";
    int64_t skipped[MP_SKIPS], payload = 1;
    AUTO(schemas) struct mp_schemas *schemas = create();
    for (int i = 0; i < 2 * LEVELS; i++) {
        const struct mp_schema_entry next = {0, OWN + (uint64_t)i + 1, 0, 0, "a"};
        add(schemas, OWN + (uint64_t)i, STATIC, 8, 0, &next, 1);
    }
    for (int i = 0; i < LEVELS; i++)
        strcat(expected, "{\"a\":");
    strcat(expected, "{}");
    for (int i = 0; i < LEVELS; i++)
        strcat(expected, "}");
    assert_json(schemas, OWN, &payload, sizeof payload, strcat(expected, "]"), skipped);
    assert_int_equal(skipped[MP_SKIP_NESTING], 1);
}

/* Fields that lie over one another, in schemas of such fields: 200 to the power of 8 numbers. */
TEST(reading_ends) {
    enum { FIELDS = 200, LEVELS = 8 };
    static struct mp_schema_entry wide[FIELDS];
    static char json[1 << 18];
    int64_t skipped[MP_SKIPS] = {0}, payload[LEVELS + 1] = {0}, number;
    struct mp_spool_record range;
    AUTO(schemas) struct mp_schemas *schemas = create();
    for (int level = 0; level <= LEVELS; level++) {
        const uint64_t inner = level ? OWN + (uint64_t)level - 1 : INT64;
        for (int f = 0; f < FIELDS; f++)
            wide[f] = (struct mp_schema_entry){0, inner, 0, level ? 8 : 0, "a"};
        add(schemas, OWN + (uint64_t)level, STATIC, 8 * ((uint64_t)level + 1), 0, wide,
            level ? FIELDS : 1);
    }
    make_range(&range, OWN + LEVELS, payload, sizeof payload, 0);
    assert_int_equal(mp_payload_json(schemas, &range, skipped, json, sizeof json), 0);
    assert_int_equal(skipped[MP_SKIP_WORK], 1);
    assert_true(mp_payload_number(schemas, &range, "a.a.a.a.a.a.a.a.a", &number));
    assert_false(mp_payload_number(schemas, &range, "a.a.a.a.a.a.a.a.b", &number));
    free((void *)range.as.range.payload);
}

/* ---- anything ---- */

static uint64_t random_number(uint64_t *random) {
    switch (test_random_int(random, 0, 5)) {
    case 0:
        return test_random(random);
    case 1:
        return UINT64_MAX - (uint64_t)test_random_int(random, 0, 8);
    case 2:
        return (uint64_t)test_random_int(random, 0, 100);
    default:
        return (uint64_t)test_random_int(random, 0, 3) * 4;
    }
}

static void add_random_schema(struct mp_schemas *schemas, uint64_t *random) {
    static const uint64_t flags[] = {0,          0,       0,         FIXED, FIXED, LENGTH_INDEX,
                                     ZERO_ENDED, POINTER, FROM_BASE, 4 << 4};
    static const uint64_t types[] = {CHAR, INT32, INT64, DOUBLE, CSTRING, 42, 21, 0, 100, 127};
    static const char *const names[] = {"a", "b", "", "a.a", "a[1]"};
    struct mp_schema_entry entry[12];
    int entries = test_random_int(random, 0, 12);
    for (int i = 0; i < entries; i++) {
        bool nested = test_random_int(random, 0, 2) == 0;
        entry[i] = (struct mp_schema_entry){
            .flags = flags[test_random_int(random, 0, 9)],
            .type = nested ? OWN + (uint64_t)test_random_int(random, 0, 9)
                           : types[test_random_int(random, 0, 9)],
            .count = test_random_int(random, 0, 3) ? (uint64_t)test_random_int(random, 0, 5)
                                                   : random_number(random),
            .offset = test_random_int(random, 0, 2) ? 0 : random_number(random),
            .name = names[test_random_int(random, 0, 4)]};
    }
    uint32_t type = test_random_int(random, 0, 9) ? (uint32_t)test_random_int(random, 0, 4)
                                                  : (uint32_t)MP_SCHEMA_ENUM;
    add(schemas, OWN + (uint64_t)test_random_int(random, 0, 9), type,
        test_random_int(random, 0, 1) ? 0 : random_number(random),
        test_random_int(random, 0, 3) ? 0 : (uint32_t)random_number(random), entry, entries);
}

/* What is read of a payload does not depend on what lies behind it, and is JSON. */
static void read_random_range(const struct mp_schemas *schemas, uint64_t *random) {
    static const char *const names[] = {"a", "b", "a.a", "a[1]", "a.b", "b[0].a", "a[1].a[1]"};
    uint8_t payload[PAYLOAD_BYTES];
    char json[2][JSON_BYTES];
    int64_t number[2] = {0}, skipped[2][MP_SKIPS] = {{0}};
    bool found[2];
    size_t length[2], size = (size_t)test_random_int(random, 0, 80);
    uint64_t schema = OWN + (uint64_t)test_random_int(random, 0, 9);
    const char *name = names[test_random_int(random, 0, 6)];
    for (size_t i = 0; i < size; i++)
        payload[i] = (uint8_t)(test_random_int(random, 0, 2) ? test_random_int(random, 0, 4)
                                                             : test_random_int(random, 0, 255));
    for (int i = 0; i < 2; i++) {
        struct mp_spool_record range;
        make_range(&range, schema, payload, size, i ? 0xff : 0);
        length[i] = mp_payload_json(schemas, &range, skipped[i], json[i], sizeof json[i]);
        found[i] = mp_payload_number(schemas, &range, name, &number[i]);
        free((void *)range.as.range.payload);
    }
    assert_int_equal(length[0], length[1]);
    assert_memory_equal(json[0], json[1], length[0]);
    assert_memory_equal(skipped[0], skipped[1], sizeof skipped[0]);
    assert_int_equal(found[0], found[1]);
    assert_int_equal(number[0], number[1]);
    if (length[0] == 0)
        return;
    json_error_t error;
    json_t *value = json_loads(json[0], JSON_DECODE_INT_AS_REAL, &error);
    if (!value)
        fail_msg("%s: %s", json[0], error.text);
    json_decref(value);
}

TEST_RANDOM(nothing_outside_a_payload_is_read) {
    for (int round = 0; round < 400; round++) {
        AUTO(schemas) struct mp_schemas *schemas = create();
        for (int i = 0; i < 14; i++)
            add_random_schema(schemas, random);
        for (int i = 0; i < 20; i++)
            read_random_range(schemas, random);
    }
}
