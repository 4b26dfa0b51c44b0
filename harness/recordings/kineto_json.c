#include "harness/recordings/kineto_json.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "harness/workload/input.h"
#include "reference/base/arena.h"

enum { CHUNK = 1 << 16, AHEAD = 256, DEPTH_EVENT = 3, DEPTH_ARGUMENTS = 4, KEY_BYTES = 48 };

/* Two times can be added. */
#define TIME_LIMIT (INT64_C(1) << 61)

/* What is read of an event or its arguments, and how. */
struct field {
    const char *key;
    enum {
        READ_PHASE,
        READ_CATEGORY,
        READ_TEXT, /* char [size] */
        READ_START,
        READ_DURATION,
        READ_THREAD,     /* uint32_t, whose number may be any 32 bits */
        READ_ID,         /* uint32_t, 0: none */
        READ_SEQUENCE,   /* uint32_t, KINETO_NO_SEQUENCE: none */
        READ_BYTES,      /* uint64_t, 0: none */
        READ_COUNT,      /* int64_t, -1: none */
        READ_SIZES,      /* uint32_t [3], of an array */
        READ_DIMENSIONS, /* of the first input, of an array of arrays */
        READ_TYPES       /* of the first input, of an array */
    } kind;
    size_t at; /* offsetof */
    size_t size;
};

#define AT(member) .at = offsetof(struct kineto_event, member)
#define TEXT_AT(member) READ_TEXT, AT(member), .size = sizeof((struct kineto_event *)0)->member

static const struct field event_fields[] = {
    {"ph", .kind = READ_PHASE},        {"cat", .kind = READ_CATEGORY},   {"name", TEXT_AT(name)},
    {"pid", READ_THREAD, AT(process)}, {"tid", READ_THREAD, AT(thread)}, {"ts", .kind = READ_START},
    {"dur", .kind = READ_DURATION},
};

static const struct field argument_fields[] = {
    {"External id", READ_ID, AT(external)},
    {"external id", READ_ID, AT(external)},
    {"correlation", READ_ID, AT(correlation)},
    {"Sequence number", READ_SEQUENCE, AT(sequence)},
    {"context", READ_ID, AT(context)},
    {"bytes", READ_BYTES, AT(bytes)},
    {"registers per thread", READ_ID, AT(registers)},
    {"shared memory", READ_ID, AT(shared)},
    {"grid", READ_SIZES, AT(grid)},
    {"block", READ_SIZES, AT(block)},
    {"Input Dims", .kind = READ_DIMENSIONS},
    {"Input type", .kind = READ_TYPES},
    {"Collective name", TEXT_AT(collective)},
    {"Process Group Name", TEXT_AT(group)},
    {"Process Group Ranks", TEXT_AT(members)},
    {"dtype", TEXT_AT(type)},
    {"In msg nelems", READ_COUNT, AT(elements_in)},
    {"Group size", READ_COUNT, AT(group_size)},
    {"Seq", READ_COUNT, AT(number)},
};

struct reading {
    struct kineto_header *header;
    int (*take)(void *, const struct kineto_event *, struct mp_error *);
    void *context;
    struct mp_error *error;
    int code;  /* of take */
    int depth; /* of objects and arrays that are open */
    bool in_events, in_distributed;
    char key[KEY_BYTES];       /* of the outermost object, and in distributedInfo */
    const struct field *field; /* NULL: one that is not read */
    struct kineto_event event;
    char phase;
    int64_t duration_ns;
    bool has_start;
    int item; /* of an array of arguments */
};

/* ---- numbers ---- */

int64_t kineto_nanoseconds(const char *text, size_t length) {
    const bool negative = length > 0 && *text == '-';
    int64_t sum = 0;
    int places = -1;
    for (size_t i = negative; i < length; i++) {
        if (text[i] == '.' && places < 0) {
            places = 0;
        } else if (text[i] >= '0' && text[i] <= '9') {
            if (places >= 3)
                continue;
            if (sum > (INT64_MAX - 9) / 10000)
                return 0; /* no time of any clock */
            sum = 10 * sum + (text[i] - '0');
            places += places >= 0;
        } else { /* 1.5e+03 */
            char copy[64];
            snprintf(copy, sizeof copy, "%.*s", (int)(length < 63 ? length : 63), text);
            const double value = strtod(copy, NULL) * 1e3;
            return value > -9e18 && value < 9e18 ? (int64_t)value : 0;
        }
    }
    for (places = places < 0 ? 0 : places; places < 3; places++)
        sum *= 10;
    return negative ? -sum : sum;
}

/* A whole number; -1: it is none. */
static int64_t whole(const char *text, size_t length) {
    char copy[32], *end;
    if (length == 0 || length >= sizeof copy)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    if (*end == '.') /* 3.0, of a writer without whole numbers */
        return value;
    return *end || errno ? -1 : value;
}

static uint32_t id_of(int64_t value) {
    return value < 0 || value > UINT32_MAX ? 0 : (uint32_t)value;
}

static void copy_text(char *to, size_t size, const char *text, size_t length) {
    length = length < size ? length : size - 1;
    memcpy(to, text, length);
    to[length] = '\0';
}

/* ---- values ---- */

static void take_header(struct reading *reading, const char *text, size_t length) {
    struct kineto_header *header = reading->header;
    const int64_t value = whole(text, length);
    if (reading->in_distributed && reading->depth == 2) {
        if (!strcmp(reading->key, "rank"))
            header->rank = value < 0 || value > INT32_MAX ? -1 : (int)value;
        else if (!strcmp(reading->key, "world_size"))
            header->ranks = value < 0 || value > INT32_MAX ? -1 : (int)value;
        else if (!strcmp(reading->key, "pg_count"))
            header->groups = value < 0 || value > INT32_MAX ? -1 : (int)value;
    } else if (reading->depth == 1) {
        if (!strcmp(reading->key, "baseTimeNanoseconds"))
            header->base_ns = value < 0 || value > TIME_LIMIT ? 0 : value;
        else if (!strcmp(reading->key, "host_name"))
            copy_text(header->host, sizeof header->host, text, length);
    }
}

static void take_category(struct reading *reading, const char *text, size_t length) {
    static const struct {
        const char *name;
        enum kineto_category category;
    } known[] = {{"cpu_op", KINETO_OPERATOR},
                 {"user_annotation", KINETO_ANNOTATION},
                 {"python_function", KINETO_MODULE},
                 {"kernel", KINETO_KERNEL},
                 {"cuda_runtime", KINETO_CALL},
                 {"cuda_driver", KINETO_CALL},
                 {"hip_runtime", KINETO_CALL},
                 {"privateuse1_runtime", KINETO_CALL},
                 {"gpu_memcpy", KINETO_COPY},
                 {"gpu_memset", KINETO_SET},
                 {"Operator", KINETO_OPERATOR}, /* until torch 1.12 */
                 {"Kernel", KINETO_KERNEL},
                 {"Runtime", KINETO_CALL},
                 {"Memcpy", KINETO_COPY},
                 {"Memset", KINETO_SET}};
    reading->event.category = KINETO_OTHER;
    for (size_t i = 0; i < MP_LENGTH(known); i++)
        if (strlen(known[i].name) == length && !memcmp(known[i].name, text, length))
            reading->event.category = known[i].category;
}

/* What is inside an array of arguments: the sizes of a kernel, and of the first input. */
static void take_item(struct reading *reading, const char *text, size_t length) {
    struct kineto_event *event = &reading->event;
    const int64_t value = whole(text, length);
    const int inside = reading->depth - DEPTH_ARGUMENTS;
    const struct field *field = reading->field;
    if (field->kind == READ_SIZES && inside == 1 && reading->item < 3)
        ((uint32_t *)((char *)event + field->at))[reading->item++] = id_of(value);
    else if (field->kind == READ_TYPES && inside == 1 && reading->item++ == 0)
        copy_text(event->first_type, sizeof event->first_type, text, length);
    else if (field->kind == READ_DIMENSIONS && inside == 2 && reading->item == 0) {
        event->first_width = value;
        if (value < 0 || __builtin_mul_overflow(event->first_size, value, &event->first_size))
            event->first_size = -1;
    }
}

static void take_member(struct reading *reading, const char *text, size_t length) {
    void *at = (char *)&reading->event + reading->field->at;
    const int64_t value = whole(text, length); /* some writers quote numbers */
    switch (reading->field->kind) {
    case READ_PHASE:
        reading->phase = length == 1 ? *text : 0;
        break;
    case READ_CATEGORY:
        take_category(reading, text, length);
        break;
    case READ_TEXT:
        copy_text(at, reading->field->size, text, length);
        break;
    case READ_START:
        reading->event.start_ns = kineto_nanoseconds(text, length);
        reading->has_start = true;
        break;
    case READ_DURATION:
        reading->duration_ns = kineto_nanoseconds(text, length);
        break;
    case READ_THREAD: /* one that is no number is of events that are nobody's */
        *(uint32_t *)at = value < 0 ? 0 : (uint32_t)value;
        break;
    case READ_ID:
        *(uint32_t *)at = id_of(value);
        break;
    case READ_SEQUENCE:
        *(uint32_t *)at =
            value < 0 || value >= KINETO_NO_SEQUENCE ? KINETO_NO_SEQUENCE : (uint32_t)value;
        break;
    case READ_BYTES:
        *(uint64_t *)at = value < 0 ? 0 : (uint64_t)value;
        break;
    case READ_COUNT:
        *(int64_t *)at = value;
        break;
    default:
        break;
    }
}

static void take_value(struct reading *reading, const char *text, size_t length) {
    if (!reading->in_events)
        take_header(reading, text, length);
    else if (reading->field && reading->depth > DEPTH_ARGUMENTS)
        take_item(reading, text, length);
    else if (reading->field)
        take_member(reading, text, length);
}

static int on_string(void *context, const unsigned char *text, size_t length) {
    take_value(context, (const char *)text, length);
    return 1;
}

static int on_number(void *context, const char *text, size_t length) {
    take_value(context, text, length);
    return 1;
}

/* ---- nesting ---- */

static const struct field *find_field(const struct field fields[], size_t count,
                                      const unsigned char *key, size_t length) {
    return MP_FIND(fields, i, count,
                   strlen(fields[i].key) == length && !memcmp(fields[i].key, key, length));
}

static const struct field *field_of(const struct reading *reading, const unsigned char *key,
                                    size_t length) {
    if (reading->depth == DEPTH_EVENT)
        return find_field(event_fields, MP_LENGTH(event_fields), key, length);
    if (reading->depth == DEPTH_ARGUMENTS)
        return find_field(argument_fields, MP_LENGTH(argument_fields), key, length);
    return NULL;
}

static int on_key(void *context, const unsigned char *key, size_t length) {
    struct reading *reading = context;
    if (reading->in_events) {
        reading->field = field_of(reading, key, length);
        reading->item = 0;
        if (reading->field && reading->field->kind == READ_DIMENSIONS)
            reading->event.first_size = 1;
    } else if (reading->depth == 1 || (reading->depth == 2 && reading->in_distributed)) {
        copy_text(reading->key, sizeof reading->key, (const char *)key, length);
    }
    return 1;
}

static void clear_event(struct reading *reading) {
    struct kineto_event *event = &reading->event;
    event->name[0] = event->first_type[0] = event->collective[0] = event->group[0] = '\0';
    event->members[0] = event->type[0] = '\0';
    event->category = KINETO_OTHER;
    event->start_ns = event->end_ns = 0;
    event->process = event->thread = event->correlation = event->external = 0;
    event->context = event->registers = event->shared = 0;
    event->sequence = KINETO_NO_SEQUENCE;
    event->bytes = 0;
    memset(event->grid, 0, sizeof event->grid);
    memset(event->block, 0, sizeof event->block);
    event->first_size = event->first_width = event->elements_in = -1;
    event->group_size = event->number = -1;
    reading->phase = 0;
    reading->duration_ns = 0;
    reading->has_start = false;
    reading->field = NULL;
}

/* Of Python's functions those count that are calls of modules: there may be millions of others. */
static bool is_wanted(const struct reading *reading) {
    static const char module[] = "nn.Module: ";
    const struct kineto_event *event = &reading->event;
    return reading->phase == 'X' && reading->has_start && reading->duration_ns >= 0 &&
           event->category != KINETO_OTHER &&
           (event->category != KINETO_MODULE || !strncmp(event->name, module, sizeof module - 1));
}

static int end_event(struct reading *reading) {
    struct kineto_event *event = &reading->event;
    reading->header->events++;
    if (!is_wanted(reading) ||
        __builtin_add_overflow(event->start_ns, reading->duration_ns, &event->end_ns) ||
        event->start_ns < -TIME_LIMIT || event->end_ns > TIME_LIMIT)
        return 1;
    reading->code = reading->take(reading->context, event, reading->error);
    return reading->code == 0;
}

static int on_open(void *context) {
    struct reading *reading = context;
    reading->depth++;
    if (reading->in_events) {
        if (reading->depth == DEPTH_EVENT)
            clear_event(reading);
        else if (reading->depth == DEPTH_ARGUMENTS)
            reading->field = NULL;
    } else if (reading->depth == 2) {
        reading->in_events = !strcmp(reading->key, "traceEvents");
        reading->in_distributed = !strcmp(reading->key, "distributedInfo");
        reading->header->has_events |= reading->in_events;
    }
    return 1;
}

static int on_close(void *context) {
    struct reading *reading = context;
    int go_on = 1;
    if (reading->in_events && reading->depth == DEPTH_EVENT)
        go_on = end_event(reading);
    else if (reading->in_events && reading->depth == DEPTH_ARGUMENTS + 2)
        reading->item++; /* the sizes of the next input */
    if (reading->depth == 2) {
        reading->in_events = reading->in_distributed = false;
        reading->key[0] = '\0';
    }
    reading->depth--;
    return go_on;
}

static const yajl_callbacks callbacks = {.yajl_number = on_number,
                                         .yajl_string = on_string,
                                         .yajl_start_map = on_open,
                                         .yajl_map_key = on_key,
                                         .yajl_end_map = on_close,
                                         .yajl_start_array = on_open,
                                         .yajl_end_array = on_close};

/* ---- files ---- */

/* Where in the text a chunk ended. */
struct place {
    bool in_text, is_escaped, in_word, is_blanked;
    bool has_key; /* what was last in front of a text is a colon */
};

static const char *behind_blanks(const char *at) {
    return at + strspn(at, " ");
}

/* Whether a text ends at a quote, by what is behind it: every one of JSON does, and one that torch
 * did not escape hardly ever.  What is not known yet is as it should be. */
static bool ends_text(bool has_key, const char *at) {
    at = behind_blanks(at);
    if (!has_key)
        return strchr(":,]", *at);
    if (*at == '}')
        return strchr(",]}", *behind_blanks(at + 1));
    if (*at != ',' || *(at = behind_blanks(at + 1)) != '"')
        return !*at;
    at += 1 + strcspn(at + 1, "\"");
    return !*at || at[-1] == '\\' || strchr(":", *behind_blanks(at + 1));
}

static bool is_escape(const char *at) {
    return at[1] == 'u' ? strspn(at + 2, "0123456789abcdefABCDEF") >= 4
                        : strchr("\"\\/bfnrt", at[1]) != NULL;
}

/* What torch writes and JSON has not: nan and inf, for numbers that nothing here reads, become 0;
 * quotes and backslashes of names that are not escaped others.  Behind `size` bytes it looks at
 * what follows, up to a zero. */
static struct place mended(struct place at, char chunk[], size_t size) {
    for (size_t i = 0; i < size; i++) {
        const char c = chunk[i];
        if (at.in_text) {
            if (at.is_escaped) {
                at.is_escaped = false;
            } else if (c == '\\') {
                at.is_escaped = is_escape(chunk + i);
                chunk[i] = at.is_escaped ? c : '/';
            } else if (c == '"') {
                at.in_text = !ends_text(at.has_key, chunk + i + 1);
                chunk[i] = at.in_text ? '\'' : c;
            }
            continue;
        }
        const bool was_in_word = at.in_word;
        at.in_text = c == '"';
        at.in_word = isalpha((unsigned char)c);
        at.has_key = c == ':' || (at.has_key && !strchr("{[,", c));
        if (at.in_word && !was_in_word)
            at.is_blanked = strchr("iINn", c) != NULL;
        if (at.in_word && at.is_blanked)
            chunk[i] = was_in_word ? ' ' : '0';
    }
    return at;
}

/* Damaged packing ends the text as the file's end would. */
static int parse(struct mp_input *input, yajl_handle parser, struct reading *reading,
                 struct mp_error *error) {
    struct kineto_header *header = reading->header;
    struct mp_error damage = {0};
    char chunk[CHUNK + 1];
    struct place place = {0};
    int64_t read = 0;
    size_t kept = 0;
    yajl_status status = yajl_status_ok;
    for (bool is_last = false; status == yajl_status_ok && !is_last;) {
        size_t got;
        mp_input_read(input, chunk + kept, CHUNK - kept, &got, &damage);
        is_last = kept + got < CHUNK;
        for (char *at = chunk + kept; at < chunk + kept + got; at++)
            *at = (unsigned char)*at < ' ' ? ' ' : *at; /* line breaks in names */
        kept += got;
        chunk[kept] = '\0';
        const size_t size = is_last ? kept : CHUNK - AHEAD;
        place = mended(place, chunk, size);
        status = yajl_parse(parser, (unsigned char *)chunk, size);
        if (status == yajl_status_error) {
            /* yajl's sentence ends in a line break. */
            unsigned char *sentence = yajl_get_error(parser, 0, NULL, 0);
            const char *text = sentence ? (const char *)sentence : "damaged";
            snprintf(header->damage, sizeof header->damage, "near byte %lld of its text: %.*s",
                     (long long)(read + (int64_t)yajl_get_bytes_consumed(parser)),
                     (int)strcspn(text, "\n"), text);
            if (sentence)
                yajl_free_error(parser, sentence);
        }
        read += (int64_t)size;
        memmove(chunk, chunk + size, kept -= size);
    }
    MP_TRY(reading->code);
    if (damage.code && damage.code != MP_EFORMAT)
        return mp_fail(error, damage.code, "%s", damage.text);
    if (status == yajl_status_ok && (yajl_complete_parse(parser) != yajl_status_ok || !read))
        snprintf(header->damage, sizeof header->damage, "where it %s, after %lld bytes of its text",
                 damage.code ? "can't be unpacked" : "is cut off", (long long)read);
    return MP_OK;
}

MP_END(parser, yajl_handle, (*it ? yajl_free(*it) : (void)0))

int kineto_read(const char *path,
                int (*take)(void *context, const struct kineto_event *event,
                            struct mp_error *error),
                void *context, struct kineto_header *header, struct mp_error *error) {
    MP_AUTO(input) struct mp_input *input = NULL;
    MP_AUTO(arena) struct mp_arena memory = {0};
    *header = (struct kineto_header){.rank = -1, .ranks = -1, .groups = -1};
    MP_TRY(mp_input_open(path, &input, error));
    struct reading *reading = mp_arena_take(&memory, 1, sizeof *reading);
    MP_AUTO(parser) yajl_handle parser = reading ? yajl_alloc(&callbacks, NULL, reading) : NULL;
    if (!parser)
        return mp_no_memory(error);
    yajl_config(parser, yajl_dont_validate_strings, 1); /* names may be any bytes */
    reading->header = header;
    reading->take = take;
    reading->context = context;
    reading->error = error;
    return parse(input, parser, reading, error);
}
