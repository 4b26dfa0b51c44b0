#include "profiler/nvtx/payload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLAG_POINTER = 1 << 1,
    FLAG_OFFSETS = 3 << 2,
    FLAG_ARRAY = 7 << 4,
    FLAG_ARRAY_FIXED = 1 << 4,
    TYPES = 128,
    FIELDS_LIMIT = 4096,
    PAYLOAD_LIMIT = 1 << 20 /* larger offsets are rubbish */
};

/* How the bytes of NVTX's types are read; size 0: not a number of a fixed size, and what follows
 * such a field can't be found. */
struct type {
    char class; /* i signed, u unsigned, f floating, - neither */
    uint8_t size;
};
static const struct type types[TYPES] = {
    [1] = {'i', 1},   [2] = {'u', 1},  [3] = {'i', 2},  [4] = {'u', 2},  [5] = {'i', 4},
    [6] = {'u', 4},   [7] = {'i', 8},  [8] = {'u', 8},  [9] = {'i', 8},  [10] = {'u', 8},
    [11] = {'i', 1},  [12] = {'u', 1}, [13] = {'i', 2}, [14] = {'u', 2}, [15] = {'i', 4},
    [16] = {'u', 4},  [17] = {'i', 8}, [18] = {'u', 8}, [19] = {'f', 4}, [20] = {'f', 8},
    [21] = {'-', 16}, [22] = {'u', 8}, [23] = {'u', 8}, [24] = {'-', 4}, [25] = {'-', 1},
    [26] = {'-', 2},  [27] = {'-', 4}, [32] = {'u', 1}, [42] = {'-', 2}, [43] = {'f', 4},
    [44] = {'f', 8},  [68] = {'u', 4}, [69] = {'u', 4}, [70] = {'u', 8}, [71] = {'u', 4},
    [72] = {'u', 8},  [73] = {'u', 4}, [74] = {'u', 8}, [75] = {'-', 8}, [76] = {'-', 8},
    [77] = {'-', 8},  [78] = {'-', 8}, [80] = {'-', 8},
};

struct field {
    char *name; /* NULL: it has none */
    struct type type;
    uint32_t offset;
    uint64_t enumeration; /* id of the schema that names its values; 0: none */
    uint64_t value;       /* of an enumeration's entry */
};

struct schema {
    uint64_t id;
    uint32_t domain;
    bool is_enumeration;
    uint64_t bytes;
    int count;
    struct field *field;
};

struct mp_schemas {
    struct schema *schema;
    int count, capacity;
};

int mp_schemas_create(struct mp_schemas **schemas, struct mp_error *error) {
    *schemas = calloc(1, sizeof **schemas);
    return *schemas ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for payload schemas");
}

static void schema_free(struct schema *schema) {
    for (int i = 0; i < schema->count; i++)
        free(schema->field[i].name);
    free(schema->field);
    *schema = (struct schema){0};
}

void mp_schemas_destroy(struct mp_schemas *schemas) {
    if (!schemas)
        return;
    for (int i = 0; i < schemas->count; i++)
        schema_free(&schemas->schema[i]);
    free(schemas->schema);
    free(schemas);
}

static struct schema *find(const struct mp_schemas *schemas, uint32_t domain, uint64_t id) {
    for (int i = 0; i < schemas->count; i++)
        if (schemas->schema[i].id == id && schemas->schema[i].domain == domain)
            return &schemas->schema[i];
    return NULL;
}

/* The type of an entry, with what else its flags say about its size. */
static struct type type_of(const struct mp_schemas *schemas, uint32_t domain,
                           const struct mp_schema_entry *entry, uint64_t *count,
                           uint64_t *enumeration) {
    struct type type = {'-', 0};
    *count = 1;
    *enumeration = 0;
    if (entry->flags & FLAG_POINTER)
        return (struct type){'-', 8};
    if (entry->type < TYPES) {
        type = types[entry->type];
    } else {
        const struct schema *other = find(schemas, domain, entry->type);
        if (other && other->is_enumeration && other->bytes <= 8) {
            type = (struct type){'u', (uint8_t)other->bytes};
            *enumeration = other->id;
        }
    }
    uint64_t array = entry->flags & FLAG_ARRAY;
    if (array == FLAG_ARRAY_FIXED)
        *count = entry->count;
    else if (array || entry->flags & FLAG_OFFSETS)
        type = (struct type){'-', 0};
    if (array)
        type.class = '-';
    return type;
}

/* Lays the fields out: offset 0 after the first is "where it naturally comes". */
static bool read_fields(struct mp_schemas *schemas, struct schema *schema,
                        const struct mp_spool_record *record) {
    struct mp_schema_entry entry;
    const uint8_t *at = record->as.schema.entry;
    size_t left = record->as.schema.entry_bytes;
    uint64_t next = 0;
    uint32_t entries = record->as.schema.entries;
    entries = entries < FIELDS_LIMIT ? entries : FIELDS_LIMIT;
    schema->field = calloc((size_t)entries + 1, sizeof *schema->field);
    for (uint32_t i = 0; schema->field && i < entries; i++) {
        if (!mp_schema_next_entry(&at, &left, &entry))
            break;
        uint64_t count, enumeration;
        struct type type = type_of(schemas, schema->domain, &entry, &count, &enumeration);
        if (schema->is_enumeration)
            type = (struct type){'-', 1};
        if (type.size == 0)
            break;
        uint64_t natural = (next + type.size - 1) / type.size * type.size;
        uint64_t offset = entry.offset || i == 0 ? entry.offset : natural;
        if (offset > PAYLOAD_LIMIT || count > PAYLOAD_LIMIT)
            break;
        next = offset + count * type.size;
        struct field *field = &schema->field[schema->count];
        *field = (struct field){NULL, type, (uint32_t)offset, enumeration, entry.count};
        if (*entry.name)
            field->name = strdup(entry.name);
        if (*entry.name && !field->name)
            return false;
        schema->count++;
    }
    return schema->field != NULL;
}

int mp_schemas_add(struct mp_schemas *schemas, const struct mp_spool_record *record,
                   struct mp_error *error) {
    struct schema made = {.id = record->as.schema.id,
                          .domain = record->as.schema.domain,
                          .is_enumeration = record->as.schema.type == MP_SCHEMA_ENUM,
                          .bytes = record->as.schema.bytes};
    if (!read_fields(schemas, &made, record)) {
        schema_free(&made);
        return mp_fail(error, MP_ENOMEM, "no memory for payload schemas");
    }
    struct schema *place = find(schemas, made.domain, made.id);
    if (place) {
        schema_free(place);
        *place = made;
        return MP_OK;
    }
    if (schemas->count == schemas->capacity) {
        int capacity = schemas->capacity ? 2 * schemas->capacity : 16;
        struct schema *grown = realloc(schemas->schema, (size_t)capacity * sizeof *grown);
        if (!grown) {
            schema_free(&made);
            return mp_fail(error, MP_ENOMEM, "no memory for payload schemas");
        }
        schemas->schema = grown;
        schemas->capacity = capacity;
    }
    schemas->schema[schemas->count++] = made;
    return MP_OK;
}

/* ---- values ---- */

static int64_t whole(double value) {
    if (isnan(value))
        return 0;
    return value >= 0x1p63 ? INT64_MAX : value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

/* Bytes of a number, as an integer; `fraction` gets it if it is a floating one. */
static int64_t number_at(const uint8_t *bytes, struct type type, double *fraction) {
    uint64_t bits = 0;
    float single;
    memcpy(&bits, bytes, type.size);
    if (type.class == 'f' && type.size == 4) {
        memcpy(&single, bytes, sizeof single);
        *fraction = (double)single;
        return whole(*fraction);
    }
    if (type.class == 'f') {
        memcpy(fraction, bytes, sizeof *fraction);
        return whole(*fraction);
    }
    if (type.class == 'i') {
        int shift = 64 - 8 * type.size;
        return (int64_t)(bits << shift) >> shift;
    }
    return (int64_t)bits;
}

static bool is_number(const struct field *field, size_t size) {
    return field->name && field->type.class != '-' && field->offset + field->type.size <= size;
}

static bool plain_number(const struct mp_range *range, int64_t *value) {
    static const struct type plain[] = {
        [MP_VALUE_U64] = {'u', 8}, [MP_VALUE_I64] = {'i', 8}, [MP_VALUE_DOUBLE] = {'f', 8},
        [MP_VALUE_U32] = {'u', 4}, [MP_VALUE_I32] = {'i', 4}, [MP_VALUE_FLOAT] = {'f', 4}};
    double fraction;
    if (range->value_type == MP_VALUE_NONE || range->value_type > MP_VALUE_FLOAT)
        return false;
    *value = number_at((const uint8_t *)&range->value, plain[range->value_type], &fraction);
    return true;
}

bool mp_payload_number(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       const char *name, int64_t *value) {
    struct mp_range_payload payload;
    const uint8_t *at = range->as.range.payload;
    size_t left = range->as.range.payload_bytes;
    double fraction;
    if (!name)
        return plain_number(&range->as.range.is, value);
    for (int i = 0; i < range->as.range.is.payloads; i++) {
        if (!mp_range_next_payload(&at, &left, &payload))
            return false;
        const struct schema *schema = find(schemas, range->as.range.is.domain, payload.schema);
        for (int f = 0; schema && f < schema->count; f++) {
            const struct field *field = &schema->field[f];
            if (!is_number(field, payload.size) || strcmp(field->name, name) != 0)
                continue;
            *value = number_at(payload.bytes + field->offset, field->type, &fraction);
            return true;
        }
    }
    return false;
}

/* ---- text ---- */

struct writing {
    char *text;
    size_t length, size;
    bool full;
};

static void put(struct writing *writing, const char *text) {
    size_t length = strlen(text);
    if (writing->full || writing->length + length + 1 > writing->size) {
        writing->full = true;
        return;
    }
    memcpy(writing->text + writing->length, text, length + 1);
    writing->length += length;
}

/* A JSON string; bytes that are not ASCII are taken as Latin-1. */
static void put_string(struct writing *writing, const char *text) {
    char one[8];
    put(writing, "\"");
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\')
            snprintf(one, sizeof one, "\\u%04x", byte);
        else
            snprintf(one, sizeof one, "%c", byte);
        put(writing, one);
    }
    put(writing, "\"");
}

static void put_value(struct writing *writing, const struct mp_schemas *schemas, uint32_t domain,
                      const struct field *field, const uint8_t *bytes) {
    char digits[40];
    double fraction = 0;
    int64_t value = number_at(bytes, field->type, &fraction);
    const struct schema *names =
        field->enumeration ? find(schemas, domain, field->enumeration) : NULL;
    for (int i = 0; names && i < names->count; i++)
        if ((int64_t)names->field[i].value == value && names->field[i].name) {
            put_string(writing, names->field[i].name);
            return;
        }
    if (field->type.class == 'f' && !isfinite(fraction))
        snprintf(digits, sizeof digits, "null");
    else if (field->type.class == 'f')
        snprintf(digits, sizeof digits, "%.17g", fraction);
    else if (field->type.class == 'i')
        snprintf(digits, sizeof digits, "%lld", (long long)value);
    else
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    put(writing, digits);
}

size_t mp_payload_json(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       char *text, size_t size) {
    struct writing writing = {.text = text, .size = size > 0 ? size - 1 : 0}; /* and the "]" */
    struct mp_range_payload payload;
    const uint8_t *at = range->as.range.payload;
    size_t left = range->as.range.payload_bytes, whole_length = 0;
    const uint32_t domain = range->as.range.is.domain;
    for (int i = 0; i < range->as.range.is.payloads; i++) {
        if (!mp_range_next_payload(&at, &left, &payload))
            break;
        const struct schema *schema = find(schemas, domain, payload.schema);
        if (!schema)
            continue;
        bool first = true;
        put(&writing, whole_length ? ",{" : "[{");
        for (int f = 0; f < schema->count; f++) {
            const struct field *field = &schema->field[f];
            if (!is_number(field, payload.size))
                continue;
            put(&writing, first ? "" : ",");
            put_string(&writing, field->name);
            put(&writing, ":");
            put_value(&writing, schemas, domain, field, payload.bytes + field->offset);
            first = false;
        }
        put(&writing, "}");
        if (writing.full)
            break;
        whole_length = writing.length;
    }
    if (whole_length > 0) {
        text[whole_length++] = ']';
        text[whole_length] = '\0';
    }
    return whole_length;
}

/* Bytes of the UTF-8 character at `text`; 0: none. */
static int character_length(const unsigned char *text) {
    int length = *text < 0x80 ? 1 : *text < 0xC2 ? 0 : *text < 0xE0 ? 2 : *text < 0xF0 ? 3 : 4;
    if (*text > 0xF4)
        return 0;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    const bool overlong = (*text == 0xE0 && text[1] < 0xA0) || (*text == 0xF0 && text[1] < 0x90);
    const bool outside = (*text == 0xED && text[1] >= 0xA0) || (*text == 0xF4 && text[1] >= 0x90);
    return overlong || outside ? 0 : length;
}

char *mp_printable_name(const char *name, char *text) {
    char *to = text;
    while (*name) {
        int length = character_length((const unsigned char *)name);
        if (length == 0) {
            to += sprintf(to, "\\x%02x", (unsigned char)*name++);
            continue;
        }
        memcpy(to, name, (size_t)length);
        to += length;
        name += length;
    }
    *to = '\0';
    return text;
}
