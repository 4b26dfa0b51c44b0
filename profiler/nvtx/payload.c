#include "profiler/nvtx/payload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/characters.h"

enum {
    FLAG_POINTER = 1 << 1,
    FLAG_OFFSETS = 3 << 2,
    FLAG_ARRAY_SHIFT = 4,
    FLAG_ARRAY_MASK = 7,
    ARRAY_FIXED = 1, /* the values of these bits */
    ARRAY_LENGTH_INDEX = 3,
    TYPE_TEXT = 75, /* CSTRING and, in UTF-8, one more; then those of wider characters */
    TYPE_TEXT_16 = 77,
    TYPE_TEXT_32 = 78,
    TYPES = 128,
    SCHEMA_DYNAMIC = 2,
    SCHEMA_UNION = 3,
    SCHEMA_UNION_INSIDE = 4,
    FIELDS_LIMIT = 4096,
    PAYLOAD_LIMIT = 1 << 20, /* larger offsets are rubbish */
    HEIGHT_LIMIT = 16,       /* schemas inside one another */
    WORK_LIMIT = 1 << 14,    /* fields that are looked at for one range */
    POINTER_BYTES = 8
};
static const uint64_t nowhere = UINT64_MAX; /* a place that can't be found */

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

enum kind { KIND_NUMBER, KIND_TEXT, KIND_NESTED, KIND_SKIPPED };

/* What a field is, or one element of it. */
struct element {
    enum kind kind;
    enum mp_payload_skip skip;   /* of KIND_SKIPPED */
    struct type type;            /* of KIND_NUMBER */
    const struct schema *schema; /* nested, or of the names of an enumeration's values */
    uint64_t size, align;        /* size 0: what follows can't be found */
};

struct field {
    char *name; /* NULL: it has none */
    uint64_t flags, type, count, offset;
    /* Worked out when it is first wanted: */
    struct element element;
    bool is_array;
    int length;        /* number of the field that says how many elements there are; -1: none */
    uint64_t elements; /* without such a field */
    uint64_t at;       /* offset in the payload; or nowhere */
};

struct schema {
    uint64_t id;
    uint32_t domain, type;
    uint64_t bytes, pack; /* as registered; 0: not said */
    int count;
    struct field *field;
    /* Worked out when it is first wanted: */
    uint64_t laid_out; /* when mp_schemas had this age */
    bool laying_out;
    int height;           /* 1 and the highest of those inside */
    uint64_t size, align; /* size 0: not known */
};

struct mp_schemas {
    struct schema *schema;
    int count;
    uint64_t age; /* how often one was added */
};

int mp_schemas_create(struct mp_schemas **schemas, struct mp_error *error) {
    return MP_NEW(*schemas, 1, error);
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

static bool is_enumeration(const struct schema *schema) {
    return schema->type == MP_SCHEMA_ENUM;
}

static bool is_union(const struct schema *schema) {
    return schema->type == SCHEMA_UNION || schema->type == SCHEMA_UNION_INSIDE;
}

static bool read_fields(struct schema *schema, const struct mp_spool_record *record) {
    struct mp_schema_entry entry;
    const uint8_t *at = record->as.schema.entry;
    size_t left = record->as.schema.entry_bytes;
    uint32_t entries = record->as.schema.entries;
    entries = entries < FIELDS_LIMIT ? entries : FIELDS_LIMIT;
    schema->field = calloc((size_t)entries + 1, sizeof *schema->field);
    for (uint32_t i = 0; schema->field && i < entries; i++) {
        if (!mp_schema_next_entry(&at, &left, &entry))
            break;
        struct field *field = &schema->field[i];
        *field = (struct field){
            .flags = entry.flags, .type = entry.type, .count = entry.count, .offset = entry.offset};
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
                          .type = record->as.schema.type,
                          .bytes = record->as.schema.bytes,
                          .pack = record->as.schema.pack};
    schemas->age++;
    MP_TRY(MP_GROW(schemas->schema, schemas->count, error));
    if (!read_fields(&made, record)) {
        schema_free(&made);
        return mp_no_memory(error);
    }
    struct schema *place = find(schemas, made.domain, made.id);
    if (place) {
        schema_free(place);
        *place = made;
        return MP_OK;
    }
    schemas->schema[schemas->count++] = made;
    return MP_OK;
}

/* ---- where fields lie: when a payload is read, as schemas may refer to later ones ---- */

static struct element skipped(enum mp_payload_skip skip, uint64_t size) {
    return (struct element){.kind = KIND_SKIPPED, .skip = skip, .size = size, .align = size};
}

static void lay_out(const struct mp_schemas *schemas, struct schema *schema, int depth);

static struct element element_of_schema(const struct mp_schemas *schemas, uint32_t domain,
                                        uint64_t id, int depth) {
    struct schema *inner = find(schemas, domain, id);
    if (!inner)
        return skipped(MP_SKIP_SCHEMA, 0);
    if (is_enumeration(inner)) {
        const uint64_t size = inner->bytes;
        if (size != 1 && size != 2 && size != 4 && size != 8)
            return skipped(MP_SKIP_TYPE, 0);
        return (struct element){KIND_NUMBER, MP_SKIPS, {'u', (uint8_t)size}, inner, size, size};
    }
    if (depth < HEIGHT_LIMIT)
        lay_out(schemas, inner, depth + 1);
    if (depth >= HEIGHT_LIMIT || inner->laying_out || inner->height > HEIGHT_LIMIT)
        return skipped(MP_SKIP_NESTING, 0);
    struct element element = {KIND_NESTED, MP_SKIPS, {'-', 0}, inner, inner->size, inner->align};
    if (is_union(inner) || inner->size == 0) {
        element.kind = KIND_SKIPPED;
        element.skip = is_union(inner) ? MP_SKIP_UNION : MP_SKIP_LENGTH;
    }
    return element;
}

/* Text of one-byte characters is read, of wider ones passed over. */
static struct element element_of_text(const struct field *field, uint64_t array) {
    const uint64_t width = field->type == TYPE_TEXT_16 ? 2 : field->type == TYPE_TEXT_32 ? 4 : 1;
    if (!array && !field->count)
        return skipped(MP_SKIP_POINTER, POINTER_BYTES);
    if (width > 1)
        return skipped(MP_SKIP_TYPE, width);
    return (struct element){.kind = KIND_TEXT, .size = 1, .align = 1};
}

static struct element element_of(const struct mp_schemas *schemas, const struct schema *schema,
                                 const struct field *field, int depth) {
    const uint64_t array = field->flags >> FLAG_ARRAY_SHIFT & FLAG_ARRAY_MASK;
    if (field->flags & FLAG_POINTER)
        return skipped(MP_SKIP_POINTER, POINTER_BYTES);
    if (field->flags & FLAG_OFFSETS)
        return skipped(MP_SKIP_OFFSET, 0);
    if (array && array != ARRAY_FIXED && array != ARRAY_LENGTH_INDEX)
        return skipped(MP_SKIP_LENGTH, 0);
    if (field->type >= TYPE_TEXT && field->type <= TYPE_TEXT_32)
        return element_of_text(field, array);
    if (field->type >= TYPES)
        return element_of_schema(schemas, schema->domain, field->type, depth);
    const struct type type = types[field->type];
    if (type.class == 0 || type.class == '-')
        return skipped(MP_SKIP_TYPE, type.size);
    return (struct element){KIND_NUMBER, MP_SKIPS, type, NULL, type.size, type.size};
}

/* How many elements the field has, or which field says so. */
static void find_length(const struct schema *schema, struct field *field) {
    const uint64_t array = field->flags >> FLAG_ARRAY_SHIFT & FLAG_ARRAY_MASK;
    const bool is_text = field->element.kind == KIND_TEXT;
    field->length = -1;
    field->is_array = array && !is_text;
    field->elements = array == ARRAY_FIXED || (is_text && !array) ? field->count : 1;
    if (field->flags & FLAG_POINTER)
        field->elements = 1;
    if (field->element.kind == KIND_SKIPPED || array != ARRAY_LENGTH_INDEX)
        return;
    const struct field *length =
        field->count < (uint64_t)(field - schema->field) ? &schema->field[field->count] : NULL;
    if (length && length->element.kind == KIND_NUMBER && !length->is_array &&
        length->element.type.class != 'f')
        field->length = (int)field->count;
    else
        field->element = skipped(MP_SKIP_LENGTH, 0);
}

/* Offset 0 after the first field is "where it naturally comes", behind the one before. */
static void place(const struct schema *schema, struct field *field, uint64_t *next) {
    uint64_t align = field->element.align > 0 ? field->element.align : 1;
    if (schema->pack > 0 && schema->pack < align)
        align = schema->pack;
    const bool is_first = field == schema->field;
    if (is_union(schema) || field->offset > 0 || is_first)
        field->at = field->offset;
    else
        field->at = *next == nowhere ? nowhere : (*next + align - 1) / align * align;
    if (field->at > PAYLOAD_LIMIT)
        field->at = nowhere;
    const bool ends = field->at != nowhere && field->element.size > 0 && field->length < 0 &&
                      field->element.size <= PAYLOAD_LIMIT && field->elements <= PAYLOAD_LIMIT;
    *next = ends ? field->at + field->element.size * field->elements : nowhere;
}

static void lay_out(const struct mp_schemas *schemas, struct schema *schema, int depth) {
    if (schema->laid_out == schemas->age || is_enumeration(schema))
        return;
    schema->laid_out = schemas->age;
    schema->laying_out = true;
    schema->height = 1;
    schema->align = 1;
    uint64_t next = 0, end = 0;
    for (int i = 0; i < schema->count; i++) {
        struct field *field = &schema->field[i];
        field->element = element_of(schemas, schema, field, depth);
        find_length(schema, field);
        place(schema, field, &next);
        const struct element *element = &field->element;
        end = next == nowhere || end == nowhere ? nowhere : next > end ? next : end;
        if (element->align > schema->align)
            schema->align = element->align;
        if (element->kind == KIND_NESTED && element->schema->height >= schema->height)
            schema->height = element->schema->height + 1;
    }
    if (schema->pack > 0 && schema->pack < schema->align)
        schema->align = schema->pack;
    schema->size = schema->type == SCHEMA_DYNAMIC ? 0 : schema->bytes;
    if (!schema->size && end != nowhere)
        schema->size = (end + schema->align - 1) / schema->align * schema->align;
    if (schema->size > PAYLOAD_LIMIT)
        schema->size = 0;
    schema->laying_out = false;
}

static const struct schema *schema_of(const struct mp_schemas *schemas, uint32_t domain,
                                      uint64_t id) {
    struct schema *schema = find(schemas, domain, id);
    if (!schema || is_enumeration(schema))
        return NULL;
    lay_out(schemas, schema, 0);
    return schema;
}

const char *mp_payload_skip_name(enum mp_payload_skip skip) {
    static const char *const names[MP_SKIPS] = {
        [MP_SKIP_POINTER] = "pointer",   [MP_SKIP_OFFSET] = "offset",
        [MP_SKIP_UNION] = "union",       [MP_SKIP_TYPE] = "type",
        [MP_SKIP_SCHEMA] = "schema",     [MP_SKIP_LENGTH] = "length",
        [MP_SKIP_POSITION] = "position", [MP_SKIP_OUTSIDE] = "outside",
        [MP_SKIP_NESTING] = "nesting",   [MP_SKIP_WORK] = "work"};
    return names[skip];
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

/* The reading of one range. */
struct reading {
    int64_t *skipped; /* NULL: not counted */
    int work;         /* fields that may still be looked at */
};

static void skip(struct reading *reading, enum mp_payload_skip reason) {
    if (reading->skipped)
        reading->skipped[reason]++;
}

/* Schemas that lie over one another may be read for as long as one likes. */
static bool may_go_on(struct reading *reading) {
    if (reading->work-- > 0)
        return true;
    skip(reading, MP_SKIP_WORK);
    return false;
}

/* Whether all of the field lies in the `size` bytes of its schema, and how many elements it has. */
static bool read_field(struct reading *reading, const struct schema *schema,
                       const struct field *field, const uint8_t *bytes, uint64_t size,
                       uint64_t *elements) {
    const struct element *element = &field->element;
    double fraction;
    if (!field->name)
        return false;
    if (element->kind == KIND_SKIPPED || field->at == nowhere) {
        skip(reading, element->kind == KIND_SKIPPED ? element->skip : MP_SKIP_POSITION);
        return false;
    }
    *elements = field->elements;
    bool inside = true;
    if (field->length >= 0) {
        const struct field *length = &schema->field[field->length];
        inside = length->at <= size && length->element.size <= size - length->at;
        int64_t value = inside ? number_at(bytes + length->at, length->element.type, &fraction) : 0;
        *elements = value < 0 ? 0 : (uint64_t)value;
    }
    inside = inside && field->at <= size && *elements <= (size - field->at) / element->size;
    if (!inside)
        skip(reading, MP_SKIP_OUTSIDE);
    return inside;
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

/* Takes "[2]" off *name; the element's number, or `elements`: there is none. */
static uint64_t take_index(const char **name, uint64_t elements) {
    char *end;
    if (**name != '[' || (*name)[1] < '0' || (*name)[1] > '9')
        return elements;
    uint64_t index = strtoull(*name + 1, &end, 10);
    if (*end != ']' || index >= elements)
        return elements;
    *name = end + 1;
    return index;
}

static bool find_number(struct reading *reading, const struct schema *schema, const uint8_t *bytes,
                        uint64_t size, const char *name, int64_t *value) {
    for (int f = 0; f < schema->count && may_go_on(reading); f++) {
        const struct field *field = &schema->field[f];
        const size_t length = field->name ? strlen(field->name) : 0;
        uint64_t elements, index = 0;
        double fraction;
        if (length == 0 || strncmp(name, field->name, length) != 0 ||
            !read_field(reading, schema, field, bytes, size, &elements))
            continue;
        const char *rest = name + length;
        if (field->is_array)
            index = take_index(&rest, elements);
        if (index >= elements)
            continue;
        const uint8_t *at = bytes + field->at + index * field->element.size;
        if (field->element.kind == KIND_NUMBER && !*rest) {
            *value = number_at(at, field->element.type, &fraction);
            return true;
        }
        if (field->element.kind == KIND_NESTED && *rest == '.' &&
            find_number(reading, field->element.schema, at, field->element.size, rest + 1, value))
            return true;
    }
    return false;
}

bool mp_payload_number(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       const char *name, int64_t *value) {
    struct reading reading = {.work = WORK_LIMIT};
    struct mp_range_payload payload;
    const uint8_t *at = range->as.range.payload;
    size_t left = range->as.range.payload_bytes;
    if (!name)
        return plain_number(&range->as.range.is, value);
    for (int i = 0; i < range->as.range.is.payloads; i++) {
        if (!mp_range_next_payload(&at, &left, &payload))
            return false;
        const struct schema *schema = schema_of(schemas, range->as.range.is.domain, payload.schema);
        if (schema && find_number(&reading, schema, payload.bytes, payload.size, name, value))
            return true;
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

/* A JSON string of at most `size` bytes; those that are not ASCII are taken as Latin-1. */
static void put_string(struct writing *writing, const char *text, uint64_t size) {
    char one[8];
    put(writing, "\"");
    for (uint64_t i = 0; i < size && text[i] && !writing->full; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\')
            snprintf(one, sizeof one, "\\u%04x", byte);
        else
            snprintf(one, sizeof one, "%c", byte);
        put(writing, one);
    }
    put(writing, "\"");
}

static void put_number(struct writing *writing, const struct element *element,
                       const uint8_t *bytes) {
    char digits[40];
    double fraction = 0;
    int64_t value = number_at(bytes, element->type, &fraction);
    const struct schema *names = element->schema;
    for (int i = 0; names && i < names->count; i++)
        if ((int64_t)names->field[i].count == value && names->field[i].name) {
            put_string(writing, names->field[i].name, UINT64_MAX);
            return;
        }
    if (element->type.class == 'f' && !isfinite(fraction))
        snprintf(digits, sizeof digits, "null");
    else if (element->type.class == 'f')
        snprintf(digits, sizeof digits, "%.17g", fraction);
    else if (element->type.class == 'i')
        snprintf(digits, sizeof digits, "%lld", (long long)value);
    else
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    put(writing, digits);
}

static void put_object(struct writing *writing, struct reading *reading,
                       const struct schema *schema, const uint8_t *bytes, uint64_t size);

static void put_value(struct writing *writing, struct reading *reading, const struct field *field,
                      const uint8_t *bytes, uint64_t elements) {
    const struct element *element = &field->element;
    if (element->kind == KIND_TEXT) {
        put_string(writing, (const char *)bytes, elements);
        return;
    }
    put(writing, field->is_array ? "[" : "");
    for (uint64_t i = 0; i < elements && !writing->full; i++, bytes += element->size) {
        put(writing, i > 0 ? "," : "");
        if (element->kind == KIND_NESTED)
            put_object(writing, reading, element->schema, bytes, element->size);
        else
            put_number(writing, element, bytes);
    }
    put(writing, field->is_array ? "]" : "");
}

static void put_object(struct writing *writing, struct reading *reading,
                       const struct schema *schema, const uint8_t *bytes, uint64_t size) {
    const char *before = "";
    put(writing, "{");
    for (int f = 0; f < schema->count && !writing->full; f++) {
        const struct field *field = &schema->field[f];
        uint64_t elements;
        if (!may_go_on(reading)) {
            writing->full = true; /* the rest of the payload is not read either */
            return;
        }
        if (!read_field(reading, schema, field, bytes, size, &elements))
            continue;
        put(writing, before);
        put_string(writing, field->name, UINT64_MAX);
        put(writing, ":");
        put_value(writing, reading, field, bytes + field->at, elements);
        before = ",";
    }
    put(writing, "}");
}

size_t mp_payload_json(const struct mp_schemas *schemas, const struct mp_spool_record *range,
                       int64_t skipped[], char *text, size_t size) {
    struct writing writing = {.text = text, .size = size > 0 ? size - 1 : 0}; /* and the "]" */
    struct reading reading = {.skipped = skipped, .work = WORK_LIMIT};
    struct mp_range_payload payload;
    const uint8_t *at = range->as.range.payload;
    size_t left = range->as.range.payload_bytes, whole_length = 0;
    for (int i = 0; i < range->as.range.is.payloads && !writing.full; i++) {
        if (!mp_range_next_payload(&at, &left, &payload))
            break;
        const struct schema *schema = schema_of(schemas, range->as.range.is.domain, payload.schema);
        if (!schema)
            continue;
        put(&writing, whole_length ? "," : "[");
        put_object(&writing, &reading, schema, payload.bytes, payload.size);
        if (!writing.full)
            whole_length = writing.length;
    }
    if (whole_length > 0) {
        text[whole_length++] = ']';
        text[whole_length] = '\0';
    }
    return whole_length;
}

char *mp_printable_name(const char *name, char *text) {
    char *to = text;
    while (*name) {
        uint32_t character;
        int length = mp_character_decode(name, &character);
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
