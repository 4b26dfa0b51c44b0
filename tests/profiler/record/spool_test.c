#include <fcntl.h>
#include <zlib.h>

#include "profiler/record/format.h"
#include "tests/profiler/record/samples.h"

enum { MOST = 1 << 16, SAMPLES = 12 };

static uint64_t seed;
static const char *path;    /* rewritten by every test */
static uint8_t spool[MOST]; /* a small spool: header, stream, samples, end */
static size_t spool_size;

static size_t size_at(const uint8_t *bytes, size_t offset) {
    struct spool_head head;
    memcpy(&head, bytes + offset, sizeof head);
    return (size_t)head.size * SPOOL_UNIT;
}

/* Recalculates the check of the record at `offset`. */
static void seal(uint8_t *bytes, size_t offset) {
    uint32_t check = (uint32_t)crc32(0, bytes + offset + 4, (uInt)(size_at(bytes, offset) - 4));
    memcpy(bytes + offset, &check, sizeof check);
}

static int write_small_spool(void **state) {
    if (make_folder(state))
        return -1;
    struct mp_record_thread *thread;
    path = strdup(folder_path("spool"));
    struct mp_recorder *recorder = create_recorder(path, &thread);
    record_samples(thread, seed, 0, 0, SAMPLES);
    assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "complete", NULL), MP_OK);
    AUTO(text) char *bytes = read_bytes(path, &spool_size);
    assert_true(spool_size <= sizeof spool);
    memcpy(spool, bytes, spool_size);
    return 0;
}

static int remove_small_spool(void **state) {
    unlink(path);
    free((char *)path);
    return remove_folder(state);
}

/* Complete records of the small spool within its first `size` bytes, and where they end. */
static int records_within(size_t size, size_t *end) {
    int records = 0;
    *end = 0;
    while (*end < spool_size && *end + size_at(spool, *end) <= size) {
        *end += size_at(spool, *end);
        records++;
    }
    return records;
}

/* Records read back, the header included. */
static int records_read(const struct contents *contents) {
    return 1 + contents->streams + contents->count[0] + contents->ends;
}

static int open_code(struct mp_error *error) {
    struct mp_spool_reader *reader = NULL;
    int code = mp_spool_open(path, &reader, error);
    mp_spool_close(reader);
    return code;
}

TEST(the_header_says_who_recorded) {
    AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct timespec now;
    char host[64] = {0};
    write_bytes(path, spool, spool_size);
    assert_int_equal(mp_spool_open(path, &reader, NULL), MP_OK);
    const struct mp_spool_header *header = mp_spool_header(reader);
    clock_gettime(CLOCK_REALTIME, &now);
    gethostname(host, sizeof host - 1);
    assert_numbers(header->version, MP_SPOOL_VERSION, header->rank, 1, header->ranks, 3);
    assert_numbers(header->node, 2, header->pid, getpid());
    assert_string_equal(header->host, host);
    assert_in_range(now.tv_sec - header->realtime_ns / 1000000000, 0, 600);
    assert_in_range(mp_clock_ns() - header->monotonic_ns, 0, 600000000000);
}

TEST(a_truncation_at_any_byte_keeps_the_records_before_it) {
    size_t header = size_at(spool, 0);
    for (size_t size = 0; size <= spool_size; size++) {
        write_bytes(path, spool, size);
        if (size < header) {
            assert_fails(open_code(&error), MP_EFORMAT, path);
            continue;
        }
        size_t end;
        int records = records_within(size, &end);
        struct contents contents = read_contents(path, seed);
        assert_int_equal(records_read(&contents), records);
        assert_numbers(contents.unread, size - end, contents.ends, size == spool_size);
    }
}

TEST(a_flipped_bit_stops_at_its_record) {
    static uint8_t flipped[MOST];
    size_t header = size_at(spool, 0);
    for (size_t bit = 0; bit < spool_size * 8; bit++) {
        memcpy(flipped, spool, spool_size);
        flipped[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_bytes(path, flipped, spool_size);
        if (bit / 8 < header) {
            assert_fails(open_code(&error), MP_EFORMAT, "");
            continue;
        }
        size_t end;
        int records = records_within(bit / 8, &end);
        struct contents contents = read_contents(path, seed);
        assert_int_equal(records_read(&contents), records);
        assert_int_equal(contents.unread, spool_size - end);
    }
}

TEST(records_of_unknown_types_are_skipped) {
    static const uint16_t types[] = {0, MP_SPOOL_CHOICES + 1, 1000, UINT16_MAX};
    static uint8_t mixed[2 * MOST];
    uint64_t random = seed;
    size_t size = 0, end;
    for (size_t at = 0; at < spool_size; at += size_at(spool, at)) {
        memcpy(mixed + size, spool + at, size_at(spool, at));
        size += size_at(spool, at);
        struct spool_head head = {.type = types[test_random(&random) % 4],
                                  .size = (uint16_t)test_random_int(&random, 1, 40)};
        memcpy(mixed + size, &head, sizeof head);
        for (size_t i = sizeof head; i < (size_t)head.size * SPOOL_UNIT; i++)
            mixed[size + i] = (uint8_t)test_random(&random);
        seal(mixed, size);
        size += (size_t)head.size * SPOOL_UNIT;
    }
    write_bytes(path, mixed, size);
    struct contents contents = read_contents(path, seed);
    assert_int_equal(records_read(&contents), records_within(spool_size, &end));
    assert_int_equal(contents.unread, 0);
}

TEST(longer_payloads_of_a_later_build_are_read) {
    static uint8_t longer[2 * MOST];
    size_t size = 0, end;
    for (size_t at = 0; at < spool_size; at += size_at(spool, at)) {
        size_t record = size_at(spool, at);
        memcpy(longer + size, spool + at, record);
        memset(longer + size + record, 0xAB, 16);
        uint16_t units = (uint16_t)(record / SPOOL_UNIT + 2);
        memcpy(longer + size + 6, &units, sizeof units);
        seal(longer, size);
        size += record + 16;
    }
    write_bytes(path, longer, size);
    struct contents contents = read_contents(path, seed);
    assert_int_equal(records_read(&contents), records_within(spool_size, &end));
}

/* ---- files that are no spools ---- */

TEST(a_spool_of_another_version_names_both) {
    static uint8_t other[MOST];
    const uint32_t version = 4711;
    memcpy(other, spool, spool_size);
    memcpy(other + sizeof(struct spool_head) + 8, &version, sizeof version);
    seal(other, 0);
    write_bytes(path, other, spool_size);
    assert_fails(open_code(&error), MP_EVERSION, path, "4711", "version 1");
}

TEST(a_later_header_may_be_short_but_not_before_its_version) {
    uint8_t bytes[24];
    struct spool_head head = {.type = MP_SPOOL_HEADER, .size = 3};
    const uint32_t version = 2;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + 8, SPOOL_MAGIC, 8);
    memcpy(bytes + 16, &version, sizeof version);
    seal(bytes, 0);
    write_bytes(path, bytes, 24);
    assert_fails(open_code(&error), MP_EVERSION, "");

    bytes[6] = 2;
    seal(bytes, 0);
    write_bytes(path, bytes, 16);
    assert_fails(open_code(&error), MP_EFORMAT, "");
}

struct foreign_case {
    const char *name, *text;
    size_t size;
};

static const struct foreign_case foreign_files[] = {
    {"an empty file", "", 0},
    {"a text", "once upon a time there was a text that is longer than a head", 60},
    {"the magic alone", "moeperf1", 8},
    {"zeros", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32},
};

TEST_EACH(a_file_that_is_no_spool_is_refused, foreign_files, file) {
    write_bytes(path, file->text, file->size);
    assert_fails(open_code(&error), MP_EFORMAT, path, "not a spool");
}

TEST(what_cannot_be_opened_says_why) {
    struct mp_spool_reader *reader = NULL;
    assert_fails(mp_spool_open(folder_path("missing"), &reader, &error), MP_ENOTFOUND, "missing");
    assert_fails(mp_spool_open(sample_folder, &reader, &error), MP_EIO, sample_folder);
    assert_null(reader);
}

/* ---- right checks on impossible contents ---- */

struct impossible_case {
    const char *name;
    uint16_t type, units;
    uint8_t payload[64];
};

static const struct impossible_case impossible[] = {
    {"a stream without a name", MP_SPOOL_STREAM, 2, {0}},
    {"a stream number of 64", MP_SPOOL_STREAM, 3, {64}},
    {"a negative stream number", MP_SPOOL_STREAM, 3, {0xff, 0xff, 0xff, 0xff}},
    {"a stream name without an end", MP_SPOOL_STREAM, 3, "\0\0\0\0\0\0\0\0compute!"},
    {"a span that is too short", MP_SPOOL_SPAN, 5, {0}},
    {"a load without experts' routes", MP_SPOOL_LOAD, 4, "\0\0\0\0\0\0\0\0\0\0\0\0\1"},
    {"a load of 2^32-1 experts", MP_SPOOL_LOAD, 5, "\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"},
    {"a load without its dropped routes", MP_SPOOL_LOAD, 5, "\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\1"},
    {"a number without a name", MP_SPOOL_NUMBER, 4, {0}},
    {"a number that is too short", MP_SPOOL_NUMBER, 2, {0}},
    {"choices of no expert each", MP_SPOOL_CHOICES, 5, {[28] = 2}},
    {"choices of three bytes", MP_SPOOL_CHOICES, 5, {[20] = 1, [28] = 3}},
    {"a range without its payload", MP_SPOOL_RANGE, 8, {[52] = 1}},
    {"a schema without its entry", MP_SPOOL_SCHEMA, 6, {[24] = 1}},
    {"a text without payload", MP_SPOOL_TEXT, 1, {0}},
    {"a text whose name has no end", MP_SPOOL_TEXT, 2, "endless!"},
    {"a text whose value has no end", MP_SPOOL_TEXT, 2, "name\0val"},
    {"a clock that is too short", MP_SPOOL_CLOCK, 3, {0}},
    {"an end that is too short", MP_SPOOL_END, 1, {0}},
    {"an end whose reason has no end", MP_SPOOL_END, 3, "\0\0\0\0\0\0\0\0because!"},
};

TEST_EACH(impossible_contents_stop_the_reader, impossible, row) {
    static uint8_t bytes[MOST];
    size_t header = size_at(spool, 0);
    const struct spool_head head = {.type = row->type, .size = row->units};
    size_t record = (size_t)head.size * SPOOL_UNIT;
    memcpy(bytes, spool, header);
    memcpy(bytes + header, &head, sizeof head);
    memcpy(bytes + header + sizeof head, row->payload, record - sizeof head);
    seal(bytes, header);
    memcpy(bytes + header + record, spool + header, spool_size - header);
    write_bytes(path, bytes, spool_size + record);
    struct contents contents = read_contents(path, seed);
    assert_int_equal(records_read(&contents), 1);
    assert_int_equal(contents.unread, spool_size + record - header);
}

TEST(the_end_stays_the_end) {
    struct mp_spool_record record;
    write_bytes(path, spool, spool_size - 1);
    AUTO(spool) struct mp_spool_reader *reader = open_spool(path);
    while (next_record(reader, &record))
        continue;
    size_t unread = mp_spool_unread(reader);
    assert_int_not_equal(unread, 0);
    assert_false(next_record(reader, &record));
    assert_int_equal(mp_spool_unread(reader), unread);
    mp_spool_close(NULL);
}

TEST_SEED(seed);
TEST_GROUP(write_small_spool, remove_small_spool);
