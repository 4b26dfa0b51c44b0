/* Random records that can be made again from (seed, writer, number), so that a reader knows what to
 * expect of every record it meets; and files in a folder of the test's own. */
#pragma once

#include "tests/files.h"
#include "tests/spools.h"

enum { SAMPLE_EXPERTS = 40, SAMPLE_VALUE = 400, SAMPLE_WRITERS = 64 };

struct sample {
    struct mp_spool_record record; /* points into this sample */
    uint32_t routes[SAMPLE_EXPERTS], dropped[SAMPLE_EXPERTS];
    char name[48], value[SAMPLE_VALUE];
};

/* Every record carries its writer and number in one field. */
static inline int64_t sample_key(int writer, int number) {
    return (int64_t)writer << 32 | number;
}

static inline void make_span(struct mp_span *span, int64_t key, uint64_t *random) {
    *span = (struct mp_span){.start_ns = key,
                             .end_ns = (int64_t)(test_random(random) | 1), /* 0: taken there */
                             .wait_ns = (int64_t)test_random(random),
                             .cpu_ns = (int64_t)test_random(random),
                             .tokens = (int64_t)test_random(random),
                             .bytes = (int64_t)test_random(random),
                             .flops = (int64_t)test_random(random),
                             .iteration = (int32_t)test_random(random),
                             .layer = (int16_t)test_random(random),
                             .phase = (uint8_t)test_random(random),
                             .direction = test_random(random) & 3};
}

static inline void make_load(struct sample *sample, int64_t key, uint64_t *random) {
    for (int e = 0; e < SAMPLE_EXPERTS; e++) {
        sample->routes[e] = (uint32_t)test_random(random);
        sample->dropped[e] = (uint32_t)test_random(random);
    }
    sample->record.as.load.iteration = key;
    sample->record.as.load.layer = (int32_t)test_random(random);
    sample->record.as.load.experts = test_random_int(random, 0, SAMPLE_EXPERTS);
    sample->record.as.load.routes = sample->routes;
    sample->record.as.load.dropped = test_random(random) & 1 ? sample->dropped : NULL;
}

static inline void make_string(char *text, int longest, uint64_t *random) {
    int length = test_random_int(random, 0, longest);
    for (int i = 0; i < length; i++)
        text[i] = (char)test_random_int(random, 1, 255);
    text[length] = '\0';
}

static inline void make_sample(struct sample *sample, uint64_t seed, int writer, int number) {
    int64_t key = sample_key(writer, number);
    uint64_t random = seed ^ ((uint64_t)key * 0x9E3779B97F4A7C15u);
    int kind = test_random_int(&random, 0, 9);
    make_string(sample->name, 47, &random);
    make_string(sample->value, SAMPLE_VALUE - 1, &random);
    switch (kind) {
    case 0:
        sample->record.type = MP_SPOOL_LOAD;
        make_load(sample, key, &random);
        break;
    case 1:
        sample->record.type = MP_SPOOL_NUMBER;
        sample->record.as.number.iteration = key;
        sample->record.as.number.layer = (int32_t)test_random(&random);
        sample->record.as.number.name = sample->name;
        sample->record.as.number.value = test_random_double(&random) * 1e9;
        break;
    case 2:
        sample->record.type = MP_SPOOL_TEXT;
        snprintf(sample->name, sizeof sample->name, "%lld", (long long)key);
        sample->record.as.text.name = sample->name;
        sample->record.as.text.value = sample->value;
        break;
    case 3:
        sample->record.type = MP_SPOOL_CLOCK;
        sample->record.as.clock.at_ns = key;
        sample->record.as.clock.offset_ns = (int64_t)test_random(&random);
        sample->record.as.clock.error_ns = (int64_t)test_random(&random);
        break;
    default:
        sample->record.type = MP_SPOOL_SPAN;
        make_span(&sample->record.as.span, key, &random);
        break;
    }
}

static inline void record_sample(struct mp_record_thread *thread, const struct sample *sample) {
    const struct mp_spool_record *r = &sample->record;
    switch (r->type) {
    case MP_SPOOL_LOAD:
        mp_record_load(thread, r->as.load.iteration, r->as.load.layer, r->as.load.experts,
                       r->as.load.routes, r->as.load.dropped);
        break;
    case MP_SPOOL_NUMBER:
        mp_record_number(thread, r->as.number.iteration, r->as.number.layer, r->as.number.name,
                         r->as.number.value);
        break;
    case MP_SPOOL_TEXT:
        mp_record_text(thread, r->as.text.name, r->as.text.value);
        break;
    case MP_SPOOL_CLOCK:
        mp_record_clock(thread, r->as.clock.at_ns, r->as.clock.offset_ns, r->as.clock.error_ns);
        break;
    default:
        mp_record_span(thread, &r->as.span);
        break;
    }
}

/* Records samples first .. last-1 of a writer. */
static inline void record_samples(struct mp_record_thread *thread, uint64_t seed, int writer,
                                  int first, int last) {
    for (int number = first; number < last; number++) {
        struct sample sample;
        make_sample(&sample, seed, writer, number);
        record_sample(thread, &sample);
    }
}

static inline int64_t key_of(const struct mp_spool_record *record) {
    switch (record->type) {
    case MP_SPOOL_LOAD:
        return record->as.load.iteration;
    case MP_SPOOL_NUMBER:
        return record->as.number.iteration;
    case MP_SPOOL_TEXT:
        return strtoll(record->as.text.name, NULL, 10);
    case MP_SPOOL_CLOCK:
        return record->as.clock.at_ns;
    default:
        return record->as.span.start_ns;
    }
}

static inline void assert_same_load(const struct mp_spool_record *got,
                                    const struct mp_spool_record *expected) {
    size_t bytes = (size_t)expected->as.load.experts * sizeof(uint32_t);
    assert_int_equal(got->as.load.layer, expected->as.load.layer);
    assert_int_equal(got->as.load.experts, expected->as.load.experts);
    assert_memory_equal(got->as.load.routes, expected->as.load.routes, bytes);
    assert_int_equal(!got->as.load.dropped, !expected->as.load.dropped);
    if (expected->as.load.dropped)
        assert_memory_equal(got->as.load.dropped, expected->as.load.dropped, bytes);
}

/* The key has been compared already; a span's stream is the caller's to compare. */
static inline void assert_same_record(const struct mp_spool_record *got,
                                      const struct mp_spool_record *expected) {
    struct mp_span span;
    assert_int_equal(got->type, expected->type);
    switch (got->type) {
    case MP_SPOOL_LOAD:
        assert_same_load(got, expected);
        break;
    case MP_SPOOL_NUMBER:
        assert_int_equal(got->as.number.layer, expected->as.number.layer);
        assert_string_equal(got->as.number.name, expected->as.number.name);
        assert_true(got->as.number.value == expected->as.number.value);
        break;
    case MP_SPOOL_TEXT:
        assert_string_equal(got->as.text.value, expected->as.text.value);
        break;
    case MP_SPOOL_CLOCK:
        assert_int_equal(got->as.clock.offset_ns, expected->as.clock.offset_ns);
        assert_int_equal(got->as.clock.error_ns, expected->as.clock.error_ns);
        break;
    default:
        span = expected->as.span;
        span.stream = got->as.span.stream;
        assert_memory_equal(&got->as.span, &span, sizeof span);
        break;
    }
}

/* What a spool holds: per writer, its records 0 .. count-1 have been read, in order. */
struct contents {
    int count[SAMPLE_WRITERS];
    int stream[SAMPLE_WRITERS]; /* of writer w, whose stream is called "w" */
    int streams, ends;
    int end_status;
    char end_reason[256];
    size_t unread;
};

static inline void take_record(struct contents *contents, const struct mp_spool_record *record,
                               uint64_t seed) {
    if (record->type == MP_SPOOL_STREAM) {
        contents->stream[atoi(record->as.stream.name)] = record->as.stream.stream;
        contents->streams++;
        return;
    }
    if (record->type == MP_SPOOL_END) {
        contents->ends++;
        contents->end_status = record->as.end.status;
        snprintf(contents->end_reason, sizeof contents->end_reason, "%s", record->as.end.reason);
        return;
    }
    int64_t key = key_of(record);
    int writer = (int)(key >> 32), number = (int)(key & 0xffffffff);
    assert_in_range(writer, 0, SAMPLE_WRITERS - 1);
    assert_int_equal(number, contents->count[writer]++);
    struct sample expected;
    make_sample(&expected, seed, writer, number);
    assert_same_record(record, &expected.record);
    if (record->type == MP_SPOOL_SPAN)
        assert_int_equal(record->as.span.stream, contents->stream[writer]);
}

/* Reads a whole spool and compares every record with the sample that was recorded. */
static inline struct contents read_contents(const char *path, uint64_t seed) {
    struct contents contents = {0};
    struct mp_spool_record record;
    AUTO(spool) struct mp_spool_reader *reader = open_spool(path);
    memset(contents.stream, -1, sizeof contents.stream);
    while (next_record(reader, &record))
        take_record(&contents, &record, seed);
    contents.unread = mp_spool_unread(reader);
    return contents;
}

/* ---- files ---- */

static char sample_folder[64];

/* Group set-up and clean-up: a folder for the test's files. */
static inline int make_folder(UNUSED void **state) {
    snprintf(sample_folder, sizeof sample_folder, "/tmp/moeperf-test.XXXXXX");
    return mkdtemp(sample_folder) ? 0 : -1;
}

static inline int remove_folder(UNUSED void **state) {
    return rmdir(sample_folder); /* fails when a test has left a file */
}

/* A path in the folder; valid until the fourth next call. */
static inline const char *folder_path(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", sample_folder, name);
    return path;
}

static inline int64_t file_size(const char *path) {
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

/* A recorder with one registered thread; the writer's number is its stream's name. */
static inline struct mp_recorder *create_recorder(const char *path,
                                                  struct mp_record_thread **thread) {
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = path, .rank = 1, .ranks = 3, .node = 2};
    assert_works(mp_recorder_create(&config, &recorder, &error));
    assert_works(mp_recorder_thread(recorder, "0", thread, &error));
    return recorder;
}
