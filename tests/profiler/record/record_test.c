#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "tests/profiler/record/samples.h"

static uint64_t seed;

/* ---- several threads ---- */

enum { WRITERS = 5, SAMPLES = 6000 };

struct writer {
    struct mp_recorder *recorder;
    int number;
    int code; /* of registration */
};

static void *register_and_record(void *argument) {
    struct writer *writer = argument;
    struct mp_record_thread *thread = NULL;
    char name[16];
    snprintf(name, sizeof name, "%d", writer->number);
    writer->code = mp_recorder_thread(writer->recorder, name, &thread, NULL);
    if (writer->code == MP_OK)
        record_samples(thread, seed, writer->number, 0, SAMPLES);
    return NULL;
}

static void start_writers(struct mp_recorder *recorder, pthread_t threads[],
                          struct writer writers[], int count, void *(*body)(void *)) {
    for (int i = 0; i < count; i++) {
        writers[i] = (struct writer){.recorder = recorder, .number = i, .code = 1};
        assert_int_equal(pthread_create(&threads[i], NULL, body, &writers[i]), 0);
    }
}

TEST(records_of_several_threads_come_back) {
    const char *path = folder_path("threads");
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = path, .ranks = 1, .buffer_spans = 10000};
    pthread_t threads[WRITERS];
    struct writer writers[WRITERS];
    assert_works(mp_recorder_create(&config, &recorder, &error));
    start_writers(recorder, threads, writers, WRITERS, register_and_record);
    for (int i = 0; i < 200; i++) /* while they record */
        assert_works(mp_recorder_flush(recorder, &error));
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_works(mp_recorder_finish(&recorder, MP_ECOMM, "rank 3 is gone", &error));
    assert_null(recorder);

    struct contents contents = read_contents(path, seed);
    assert_int_equal(contents.streams, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(contents.count[i], SAMPLES);
    assert_numbers(contents.ends, 1, contents.end_status, MP_ECOMM);
    assert_string_equal(contents.end_reason, "rank 3 is gone");
    assert_int_equal(contents.unread, 0);
    unlink(path);
}

static void *register_only(void *argument) {
    struct writer *writer = argument;
    struct mp_record_thread *thread = NULL;
    char name[16];
    snprintf(name, sizeof name, "%d", writer->number % SAMPLE_WRITERS);
    writer->code = mp_recorder_thread(writer->recorder, name, &thread, NULL);
    return NULL;
}

TEST(threads_register_at_once_up_to_a_limit) {
    enum { THREADS = 70, MOST = 64 };
    const char *path = folder_path("register");
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = path, .ranks = 1};
    pthread_t threads[THREADS];
    struct writer writers[THREADS];
    int registered = 0, refused = 0;
    assert_int_equal(mp_recorder_create(&config, &recorder, NULL), MP_OK);
    start_writers(recorder, threads, writers, THREADS, register_only);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        registered += writers[i].code == MP_OK;
        refused += writers[i].code == MP_ELIMIT;
    }
    assert_int_equal(registered, MOST);
    assert_int_equal(refused, THREADS - MOST);
    assert_int_equal(mp_recorder_finish(&recorder, MP_OK, NULL, NULL), MP_OK);
    assert_int_equal(read_contents(path, seed).streams, MOST);
    unlink(path);
}

/* ---- one thread ---- */

/* Ends a recording of one thread and opens it behind its stream; its file goes. */
static struct mp_spool_reader *end_and_open(struct mp_recorder *recorder, const char *path,
                                            int code) {
    struct mp_spool_record record;
    assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "", NULL), code);
    struct mp_spool_reader *reader = open_spool(path);
    unlink(path);
    assert_true(next_of(reader, MP_SPOOL_STREAM, &record));
    return reader;
}

static size_t allocated_bytes(void) {
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

TEST(more_spans_than_the_buffer_holds_stay_within_it) {
    enum { SPANS = 200000, SPAN_BYTES = 72, BUFFER = 1024 * 1024 };
    const char *path = folder_path("bounded");
    struct mp_record_thread *thread = NULL;
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = path, .ranks = 1, .buffer_spans = 100};
    int64_t bytes, spans;
    assert_int_equal(mp_recorder_create(&config, &recorder, NULL), MP_OK);
    assert_int_equal(mp_recorder_thread(recorder, "0", &thread, NULL), MP_OK);

    size_t before = allocated_bytes();
    for (int i = 0; i < SPANS; i++) {
        struct mp_span span = {.start_ns = i, .end_ns = i + 1, .iteration = i};
        mp_record_span(thread, &span);
    }
    assert_int_equal(allocated_bytes(), before);
    mp_recorder_totals(recorder, &bytes, &spans);
    assert_int_equal(spans, SPANS);
    assert_in_range(bytes, (int64_t)SPANS * SPAN_BYTES - BUFFER, (int64_t)SPANS * SPAN_BYTES);
    assert_int_equal(bytes, file_size(path));

    AUTO(spool) struct mp_spool_reader *reader = end_and_open(recorder, path, MP_OK);
    struct mp_spool_record record;
    int read = 0;
    while (next_of(reader, MP_SPOOL_SPAN, &record))
        assert_int_equal(record.as.span.iteration, read++);
    assert_int_equal(read, SPANS);
}

/* Its buffer starts over when it is full and when it is cleared, and no file is made. */
TEST(a_scratch_recording_keeps_nothing) {
    uint64_t random = seed;
    struct mp_record_thread *thread = NULL;
    assert_int_equal(mp_record_scratch_create(&thread, NULL), MP_OK);
    size_t before = allocated_bytes();
    int rounds = 3 + (int)(random % 5);
    for (int round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < 1000 + random % 20000; i++)
            mp_record_span(thread, &(struct mp_span){.start_ns = 1, .iteration = round});
        mp_record_scratch_clear(thread);
    }
    assert_int_equal(allocated_bytes(), before);
    mp_record_scratch_destroy(thread);
    mp_record_scratch_destroy(NULL);
}

TEST(an_open_span_ends_when_it_is_recorded) {
    const char *path = folder_path("ends");
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    struct mp_span span = {.start_ns = mp_clock_ns(), .phase = MP_PHASE_GATE};
    mp_record_span(thread, &span);
    int64_t after = mp_clock_ns();
    AUTO(spool) struct mp_spool_reader *reader = end_and_open(recorder, path, MP_OK);
    struct mp_spool_record record;
    assert_true(next_record(reader, &record));
    assert_in_range(record.as.span.end_ns, span.start_ns, after);
}

/* "é" is two bytes: a cut at `kept` or inside the character leaves `kept` bytes before it. */
struct cut_case {
    const char *name;
    int letters; /* before one "é" and many more letters */
    size_t kept;
};

static const struct cut_case cut_cases[] = {
    {"a name of 47 letters is whole", 47, 47},
    {"a character that just fits is kept", 45, 47},
    {"a character across the limit goes whole", 46, 46},
};

TEST_EACH(long_names_and_values_are_cut_between_characters, cut_cases, row) {
    enum { LONG = 70000, LIMIT = 60000 };
    static char value[LONG + 1];
    const char *path = folder_path("cut");
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    char name[128];
    memset(value, 'v', LONG);
    snprintf(name, sizeof name, "%.*s\xc3\xa9%s", row->letters, value, "tail");
    mp_record_text(thread, name, value);
    mp_record_number(thread, -1, -1, name, 0.5);

    AUTO(spool) struct mp_spool_reader *reader = end_and_open(recorder, path, MP_OK);
    struct mp_spool_record record;
    assert_true(next_record(reader, &record));
    assert_int_equal(strlen(record.as.text.name), row->kept);
    assert_memory_equal(record.as.text.name, name, row->kept);
    assert_int_equal(strlen(record.as.text.value), LIMIT);
    assert_true(next_record(reader, &record));
    assert_int_equal(strlen(record.as.number.name), row->kept);
}

TEST(a_load_of_any_size_fits_or_is_reported) {
    enum { MOST = 65531 };
    static uint32_t routes[MOST + 1];
    const char *path = folder_path("load");
    uint64_t random = seed;
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    for (int e = 0; e <= MOST; e++)
        routes[e] = (uint32_t)test_random(&random);
    mp_record_load(thread, 3, 4, MOST, routes, routes + 1);
    assert_works(mp_recorder_flush(recorder, &error));
    mp_record_load(thread, 3, 5, MOST + 1, routes, NULL);
    assert_fails(mp_recorder_flush(recorder, &error), MP_ELIMIT, path, "65532");
    AUTO(spool) struct mp_spool_reader *reader = end_and_open(recorder, path, MP_ELIMIT);
    struct mp_spool_record record;
    assert_true(next_record(reader, &record));
    assert_int_equal(record.as.load.experts, MOST);
    assert_memory_equal(record.as.load.routes, routes, MOST * sizeof *routes);
    assert_memory_equal(record.as.load.dropped, routes + 1, MOST * sizeof *routes);
}

TEST(choices_of_many_tokens_come_in_parts) {
    enum { TOP_K = 3, CHOICES = 3 * 50000 };
    static int32_t expert[CHOICES];
    static const int experts[] = {9, 40000}; /* of two bytes, of four */
    const char *path = folder_path("choices");
    uint64_t random = seed;
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    for (int i = 0; i < CHOICES; i++)
        expert[i] = test_random_int(&random, -9, 8);
    for (int k = 0; k < 2; k++)
        mp_record_choices(thread, 3, 4 + k, experts[k], TOP_K, CHOICES, expert);
    mp_record_choices(NULL, 3, 4, 9, TOP_K, CHOICES, expert);
    AUTO(spool) struct mp_spool_reader *reader = end_and_open(recorder, path, MP_OK);
    struct mp_spool_record record;
    int64_t got[2] = {0};
    while (next_of(reader, MP_SPOOL_CHOICES, &record)) {
        int k = record.as.choices.layer - 4;
        assert_numbers(record.as.choices.iteration, 3, record.as.choices.top_k, TOP_K);
        assert_int_equal(record.as.choices.first, got[k]);
        assert_int_equal(record.as.choices.width, k ? 4 : 2);
        for (int i = 0; i < record.as.choices.count; i++) {
            const uint8_t *at = record.as.choices.expert + i * record.as.choices.width;
            int32_t wide;
            int16_t narrow;
            memcpy(&narrow, at, sizeof narrow);
            memcpy(&wide, at, k ? sizeof wide : sizeof narrow);
            assert_int_equal(k ? wide : narrow, expert[got[k]++]);
        }
    }
    assert_numbers(got[0], CHOICES, got[1], CHOICES);
    assert_int_equal(mp_spool_unread(reader), 0);
}

TEST(nothing_happens_without_a_thread) {
    struct mp_span span = {0};
    uint32_t routes[1] = {1};
    struct mp_recorder *none = NULL;
    mp_record_span(NULL, &span);
    mp_record_load(NULL, 0, 0, 1, routes, NULL);
    mp_record_number(NULL, 0, 0, "loss", 1);
    mp_record_text(NULL, "host", "here");
    mp_record_clock(NULL, 1, 2, 3);
    assert_int_equal(mp_recorder_finish(&none, MP_OK, "", NULL), MP_OK);
    assert_int_equal(span.end_ns, 0);
}

/* ---- what is refused ---- */

TEST(an_existing_file_is_refused_and_kept) {
    const char *path = folder_path("existing");
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = path, .ranks = 1};
    write_bytes(path, "precious", 8);
    assert_fails(mp_recorder_create(&config, &recorder, &error), MP_EINVAL, path);
    assert_null(recorder);
    assert_int_equal(file_size(path), 8);
    unlink(path);
}

struct refusal_case {
    const char *name, *path;
    int rank, ranks, buffer_spans;
    int code;
};

static const struct refusal_case refusals[] = {
    {"a folder that does not exist", "/nonexistent/rank0.spool", 0, 1, 0, MP_EIO},
    {"a negative rank", "never", -1, 1, 0, MP_EINVAL},
    {"a rank that is no rank", "never", 4, 4, 0, MP_EINVAL},
    {"no ranks", "never", 0, 0, 0, MP_EINVAL},
    {"a negative buffer", "never", 0, 1, -1, MP_EINVAL},
};

TEST_EACH(a_bad_configuration_is_refused, refusals, row) {
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = row->path,
                                        .rank = row->rank,
                                        .ranks = row->ranks,
                                        .buffer_spans = row->buffer_spans};
    assert_fails(mp_recorder_create(&config, &recorder, &error), row->code, row->path);
    assert_int_not_equal(access("never", F_OK), 0);
}

TEST(a_stream_needs_a_name_that_fits) {
    const char *path = folder_path("names");
    char name[49] = {0};
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    memset(name, 'n', 48);
    assert_int_equal(mp_recorder_thread(recorder, "", &thread, NULL), MP_EINVAL);
    assert_int_equal(mp_recorder_thread(recorder, name, &thread, NULL), MP_EINVAL);
    assert_int_equal(mp_recorder_thread(recorder, name + 1, &thread, NULL), MP_OK);
    assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "", NULL), MP_OK);
    unlink(path);
}

/* ---- names and clocks ---- */

TEST(phases_have_names_of_their_own) {
    for (int phase = 0; phase < MP_PHASES; phase++) {
        assert_string_not_equal(mp_phase_name(phase), "?");
        for (int other = 0; other < phase; other++)
            assert_string_not_equal(mp_phase_name(phase), mp_phase_name(other));
    }
    for (int phase = 0; phase < MP_PHASES; phase++) {
        const char *name = mp_phase_name(phase);
        assert_int_equal(mp_phase_find(name, strlen(name)), phase);
        assert_int_equal(mp_phase_find(name, strlen(name) - 1), MP_PHASES);
    }
    assert_int_equal(mp_phase_find("moved", 4), MP_PHASE_MOVE);
    assert_int_equal(mp_phase_find("?", 1), MP_PHASES);
    assert_string_equal(mp_phase_name(MP_PHASE_ALLREDUCE), "allreduce");
    assert_string_equal(mp_phase_name(MP_PHASES), "?");
    assert_string_equal(mp_phase_name((enum mp_phase) - 1), "?");
}

TEST(a_ping_pong_gives_offset_and_trip) {
    int64_t offset, trip;
    mp_clock_offset(1000, 1530, 1540, 1070, &offset, &trip);
    assert_int_equal(offset, 500);
    assert_int_equal(trip, 60);
    mp_clock_offset(1530, 1070, 1090, 1610, &offset, &trip); /* 30 each way, 490 behind */
    assert_int_equal(offset, -490);
    assert_int_equal(trip, 60);
}

TEST(the_offset_is_right_within_half_the_trip) {
    uint64_t random = seed;
    for (int i = 0; i < 1000; i++) {
        int64_t truth = (int64_t)(test_random(&random) >> 4) - (INT64_MAX >> 4);
        int64_t there = test_random_int(&random, 0, 100000);
        int64_t back = test_random_int(&random, 0, 100000);
        int64_t answering = test_random_int(&random, 0, 100000);
        int64_t t0 = (int64_t)(test_random(&random) >> 4);
        int64_t arrived = t0 + there, left = arrived + answering;
        int64_t offset, trip;
        mp_clock_offset(t0, arrived + truth, left + truth, left + back, &offset, &trip);
        assert_int_equal(trip, there + back);
        assert_true(llabs(offset - truth) <= trip / 2 + 1);
    }
}

TEST(cpu_time_of_a_thread_grows_with_its_work) {
    int64_t wall = mp_clock_ns();
    int64_t start = mp_clock_thread_cpu_ns();
    while (mp_clock_thread_cpu_ns() - start < 2000000)
        continue;
    /* A thread cannot compute for longer than the clock on the wall went on; the kernel's
     * accounting of processor time may run a little ahead. */
    assert_true(mp_clock_ns() - wall >= 1000000);
    start = mp_clock_thread_cpu_ns();
    usleep(20000);
    assert_true(mp_clock_thread_cpu_ns() - start < 10000000);
}

static void *compute_until_told(void *stop) {
    while (!atomic_load((atomic_bool *)stop))
        continue;
    return NULL;
}

/* Two threads that compute on one core: each has to wait for the other. */
TEST(waiting_for_a_core_is_known) {
    pthread_t other;
    atomic_bool stop = false;
    cpu_set_t before, one;
    int64_t ready = mp_clock_thread_ready_ns(), wall = mp_clock_ns();
    if (ready < 0) { /* a kernel without these counts says so every time */
        assert_int_equal(mp_clock_thread_ready_ns(), -1);
        return;
    }
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&other, NULL, compute_until_told, &stop), 0);
    int64_t start = mp_clock_thread_cpu_ns();
    while (mp_clock_thread_cpu_ns() - start < 50000000)
        continue;
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    ready = mp_clock_thread_ready_ns() - ready;
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(ready > 1000000);
    assert_true(ready <= mp_clock_ns() - wall);
}

TEST_SEED(seed);
TEST_GROUP(make_folder, remove_folder);
