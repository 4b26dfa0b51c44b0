/* Ranges of annotated programs and rules for them, both arbitrary: the mapping ends, counts what it
 * was given, and the spool that it writes has its spans and all that was there before.
 *
 * The bytes before the first zero are a rules file; where they are none, usual rules hold.  Those
 * behind it choose what a program does: ranges pushed and popped, too often or never, marks, names
 * and schemas before or after their use, and a clock that may jump to any time. */
#include "harness/record/mapping.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/spool_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static const struct mp_record_loads no_loads;

enum { THREADS = 4, DEPTH = 16, NAMES = 16, RANK = 1, RANKS = 3 };
enum { PUSH, POP, MARK, CLOCK, NAME, RANGE, SCHEMA, NUMBER, END, OPERATIONS };

static const char usual_rules[] =
    "rules:\n"
    "  - {name: step*, phase: iteration, iteration: payload.a}\n"
    "  - {name: 'layer {layer} {phase}', direction: payload.b, tokens: payload, bytes: payload.a}\n"
    "  - {name: 'i{iteration}l{layer}', phase: gate}\n"
    "  - {name: g*, domain: d*, phase: dispatch, layer: count, iteration: count, tokens: 7}\n"
    "  - {name: e*, phase: expert, layer: payload}\n"
    "iteration-ends:\n"
    "  - {name: '*end'}\n";

/* What the program did. */
struct program {
    struct choices choices;
    int64_t now_ns;
    struct mp_range open[THREADS][DEPTH];
    int depth[THREADS];
    int64_t ranges, unfinished;
    bool ended;
};

static struct spool_bytes spool;
static char folder[] = "/tmp/moeperf-fuzz-XXXXXX";
static char written[64];

static void leave(void) {
    unlink(written);
    rmdir(folder);
}

/* Where the mapped spool goes. */
static void choose_folder(void) {
    if (written[0])
        return;
    expect(mkdtemp(folder) != NULL, "mkdtemp");
    snprintf(written, sizeof written, "%s/mapped.spool", folder);
    atexit(leave);
}

/* ---- the program ---- */

static uint32_t choose_id(struct choices *choices) {
    uint8_t byte = choose_byte(choices);
    return byte < 0xF0 ? byte % NAMES : (uint32_t)choose_number(choices);
}

static struct mp_range choose_range(struct program *program) {
    struct mp_range range = {.name = choose_id(&program->choices),
                             .thread = choose_byte(&program->choices) % THREADS};
    uint8_t more = choose_byte(&program->choices);
    range.domain = more % 4;
    if (more & 4) {
        range.value_type = choose_byte(&program->choices) % 9;
        range.value = (uint64_t)choose_number(&program->choices);
    }
    range.payloads = more >> 3 & 1;
    range.traits = more >> 4 & 7;
    return range;
}

/* A payload's bytes are chosen where its range ends. */
static void add_range(struct program *program, const struct mp_range *range) {
    struct {
        struct spool_blob_head head;
        uint8_t bytes[32];
    } payload = {0};
    struct mp_spool_record record = {
        .type = MP_SPOOL_RANGE, .as.range = {.is = *range, .payload = (const uint8_t *)&payload}};
    if (range->payloads) {
        uint8_t choice = choose_byte(&program->choices);
        payload.head.schema = choice % 4;
        payload.head.size = choice / 4 % (sizeof payload.bytes + 1);
        choose_bytes(&program->choices, payload.bytes, payload.head.size);
        record.as.range.payload_bytes = sizeof payload;
    }
    if (!spool_add(&spool, &record))
        return;
    program->ranges++;
    program->unfinished += range->end_ns == 0;
}

static void push(struct program *program) {
    struct mp_range range = choose_range(program);
    int *depth = &program->depth[range.thread];
    range.start_ns = program->now_ns++;
    range.level = (uint16_t)*depth;
    if (*depth < DEPTH)
        program->open[range.thread][(*depth)++] = range;
}

static void pop(struct program *program) {
    int *depth = &program->depth[choose_byte(&program->choices) % THREADS];
    if (*depth == 0)
        return; /* as often as it likes: a collector counts these */
    struct mp_range *range = &program->open[depth - program->depth][--*depth];
    range->end_ns = program->now_ns++;
    add_range(program, range);
}

static void add_any_range(struct program *program) {
    struct mp_range range = choose_range(program);
    range.kind = choose_byte(&program->choices) % 4;
    range.start_ns = choose_number(&program->choices);
    range.end_ns = choose_number(&program->choices);
    add_range(program, &range);
}

static void add_mark(struct program *program) {
    struct mp_range range = choose_range(program);
    range.kind = MP_RANGE_MARK;
    range.start_ns = range.end_ns = program->now_ns;
    add_range(program, &range);
}

static void add_name(struct program *program) {
    char text[256];
    struct mp_spool_record record = {.type = MP_SPOOL_NAME,
                                     .as.name = {.id = choose_id(&program->choices), .text = text}};
    record.as.name.kind = choose_byte(&program->choices) % 5;
    record.as.name.domain = choose_byte(&program->choices) % 4;
    choose_text(&program->choices, text);
    spool_add(&spool, &record);
}

/* One with a name of its own and up to three entries behind it. */
static void add_schema(struct program *program) {
    uint8_t entries[3 * sizeof(struct mp_schema_entry)], *at = entries;
    size_t left = sizeof entries;
    struct choices *choices = &program->choices;
    uint8_t choice = choose_byte(choices);
    struct mp_spool_record record = {.type = MP_SPOOL_SCHEMA,
                                     .as.schema = {.id = choice % 4,
                                                   .entries = choice / 4 % 4,
                                                   .type = choose_byte(choices),
                                                   .name = "s",
                                                   .entry = entries}};
    record.as.schema.bytes = (uint64_t)choose_number(choices);
    if (record.as.schema.type == UINT8_MAX)
        record.as.schema.type = MP_SCHEMA_ENUM;
    for (uint32_t i = 0; i < record.as.schema.entries; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        struct mp_schema_entry entry = {.flags = (uint64_t)choose_number(choices), .name = name};
        entry.type = (uint64_t)choose_number(choices);
        entry.count = (uint64_t)choose_number(choices);
        entry.offset = (uint64_t)choose_number(choices);
        mp_schema_put_entry(&at, &left, &entry);
    }
    record.as.schema.entry_bytes = sizeof entries - left;
    spool_add(&spool, &record);
}

static void add_number(struct program *program) {
    static const char *const names[] = {"nvtx-unmatched-ends", "nvtx-lost", "nvtx-pair-ns", "loss"};
    struct mp_spool_record record = {
        .type = MP_SPOOL_NUMBER,
        .as.number = {
            .iteration = -1, .layer = -1, .name = names[choose_byte(&program->choices) % 4]}};
    choose_bytes(&program->choices, &record.as.number.value, sizeof record.as.number.value);
    spool_add(&spool, &record);
}

static void add_end(struct program *program) {
    char text[256];
    const struct mp_spool_record record = {.type = MP_SPOOL_END,
                                           .as.end = {choose_byte(&program->choices), 0, text}};
    choose_text(&program->choices, text);
    program->ended |= spool_add(&spool, &record);
}

static void operate(struct program *program) {
    switch (choose_byte(&program->choices) % OPERATIONS) {
    case PUSH:
        push(program);
        break;
    case POP:
        pop(program);
        break;
    case MARK:
        add_mark(program);
        break;
    case CLOCK: /* never so far that the next steps leave 64 bits */
        program->now_ns = choose_number(&program->choices) / 2;
        break;
    case NAME:
        add_name(program);
        break;
    case RANGE:
        add_any_range(program);
        break;
    case SCHEMA:
        add_schema(program);
        break;
    case NUMBER:
        add_number(program);
        break;
    default:
        add_end(program);
        break;
    }
}

static void run_program(struct program *program) {
    spool_start(&spool, 0, 1, 1, "host");
    while (program->choices.left > 0)
        operate(program);
    for (int t = 0; t < THREADS; t++)
        for (int d = 0; d < program->depth[t]; d++)
            add_range(program, &program->open[t][d]);
}

/* ---- what came of it ---- */

static void check_totals(const struct mp_mapping *mapping, const struct program *program) {
    const struct mp_mapping_totals *totals = mp_mapping_totals(mapping);
    int64_t count = 0;
    const char *unmatched = mp_mapping_unmatched(mapping, &count);
    expect(totals->ranges == program->ranges, "all ranges");
    expect(totals->unfinished == program->unfinished, "all that were open");
    expect(totals->ended == program->ended, "its end");
    expect(totals->iterations <= totals->spans, "iterations are spans");
    expect(totals->spans + totals->enclosed <= 2 * (totals->ranges - totals->unfinished),
           "a range becomes one span, and ends an iteration at most");
    expect(totals->seconds >= 0 && totals->seconds < 2e10, "its length");
    expect(totals->lost >= 0 && totals->unmatched_ends >= 0 && totals->pair_ns >= 0, "numbers");
    expect(count >= 0 && count <= totals->ranges && (count == 0 || unmatched), "unmatched names");
}

static void check_written(const struct mp_mapping_totals *totals) {
    struct mp_error error = {0};
    struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    int64_t spans = 0, iterations = 0, ranges = 0, until_ns = INT64_MIN;
    bool ended = false;
    expect(mp_spool_open(written, &reader, &error) == MP_OK, error.text);
    expect(mp_spool_header(reader)->rank == RANK && mp_spool_header(reader)->ranks == RANKS,
           "the rank that was asked for");
    while (mp_spool_next(reader, &record, &error) == 1) {
        expect(!ended, "its end is the last record");
        ended = record.type == MP_SPOOL_END;
        ranges += record.type == MP_SPOOL_RANGE;
        if (record.type != MP_SPOOL_SPAN)
            continue;
        const struct mp_span *span = &record.as.span;
        spans++;
        expect(span->end_ns >= span->start_ns && span->phase < MP_PHASES && span->stream < 2 &&
                   span->iteration >= -1 && span->layer >= -1,
               "a span that can be");
        if (span->phase != MP_PHASE_ITERATION)
            continue;
        iterations++;
        expect(span->start_ns >= until_ns, "iterations follow each other");
        until_ns = span->end_ns;
    }
    expect(mp_spool_unread(reader) == 0 && ended == totals->ended, "a whole spool");
    expect(spans == totals->spans && iterations == totals->iterations && ranges == totals->ranges,
           "what was counted");
    mp_spool_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    const uint8_t *zero = size ? memchr(input, 0, size) : NULL;
    if (!zero)
        return 0;
    size_t length = (size_t)(zero - input);
    struct program program = {.choices = {zero + 1, size - length - 1}, .now_ns = 1000};
    struct mp_rules rules = {0};
    struct mp_error error = {0};
    struct mp_mapping *mapping = NULL;
    if (length == 0 || mp_rules_parse("rules", (const char *)input, length, &rules, NULL)) {
        mp_rules_destroy(&rules);
        expect(mp_rules_parse("rules", usual_rules, sizeof usual_rules - 1, &rules, &error) ==
                   MP_OK,
               error.text);
    }
    run_program(&program);
    choose_folder();
    expect(mp_mapping_create(input_file(spool.bytes, spool.size), &rules, &mapping, &error) ==
               MP_OK,
           error.text);
    check_totals(mapping, &program);
    unlink(written);
    const struct mp_mapped as = {.rank = RANK, .ranks = RANKS, .loads = &no_loads};
    expect(mp_mapping_write(mapping, written, &as, &error) == MP_OK, error.text);
    check_written(mp_mapping_totals(mapping));
    mp_mapping_destroy(mapping);
    mp_rules_destroy(&rules);
    return 0;
}
