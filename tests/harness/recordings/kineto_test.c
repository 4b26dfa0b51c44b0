/* Traces of PyTorch's profiler that end anywhere: what is before is read as if the rest were there.
 */
#include "tests/errors.h"
#include "tests/harness/recordings/kineto.h"

#include <sys/stat.h>

#include "harness/recordings/kineto_json.h"
#include "harness/recordings/kineto_model.h"
#include "harness/recordings/recordings.h"
#include "tests/harness/folder.h"

/* A digest of every event, in order. */
struct seen {
    uint64_t digest[8192];
    int count;
    char name[sizeof((struct kineto_event *)0)->name]; /* of the last */
};

static uint64_t mix(uint64_t digest, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        digest = (digest ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return digest;
}

static int see(void *context, const struct kineto_event *event, UNUSED struct mp_error *error) {
    struct seen *seen = context;
    uint64_t digest = mix(17, event->name, strlen(event->name));
    const int64_t numbers[] = {event->start_ns,    event->end_ns,      event->category,
                               event->thread,      event->process,     event->correlation,
                               event->external,    event->sequence,    event->first_size,
                               event->elements_in, event->first_width, event->grid[1]};
    strcpy(seen->name, event->name);
    assert_in_range(seen->count, 0, 8191);
    seen->digest[seen->count++] = mix(digest, numbers, sizeof numbers);
    return MP_OK;
}

static void read_seen(const char *path, struct seen *seen, struct kineto_header *header) {
    seen->count = 0;
    assert_works(kineto_read(path, see, seen, header, &error));
}

static void write_job(bool on_gpu, const char *ending) {
    const struct kineto_job job = {
        .on_gpu = on_gpu, .annotated = true, .steps = 3, .slow_rank = -1, .base_ns = 1000};
    kineto_write(&job, ending);
}

TEST_RANDOM(events_before_a_cut_are_the_same) {
    static struct seen whole, cut;
    struct kineto_header header;
    for (int round = 0; round < 60; round++) {
        const bool packed = round % 2;
        const char *path = packed ? "rank1.json.gz" : "rank1.json";
        struct stat status;
        write_job(round % 4 < 2, packed ? ".gz" : "");
        read_seen(path, &whole, &header);
        assert_string_equal(header.damage, "");
        assert_numbers(header.rank, 1, header.ranks, 3, header.base_ns, 1000, header.groups, 1);
        assert_int_equal(stat(path, &status), 0);
        const off_t at = test_random_int(random, 0, (int)status.st_size - 20);
        assert_int_equal(truncate(path, at), 0);
        read_seen(path, &cut, &header);
        assert_string_not_equal(header.damage, "");
        assert_in_range(cut.count, 0, whole.count);
        assert_memory_equal(cut.digest, whole.digest, (size_t)cut.count * sizeof *cut.digest);
        if (!packed) /* an event is some 200 bytes, and a tail of them is torn */
            assert_true(cut.count >=
                        (int)(0.9 * whole.count * (double)at / (double)status.st_size) - 12);
    }
}

/* One byte is another: the events before it are the same, whatever becomes of the others. */
TEST_RANDOM(a_wrong_byte_costs_nothing_before_it) {
    static struct seen whole, damaged;
    struct kineto_header header;
    write_job(true, "");
    read_seen("rank1.json", &whole, &header);
    struct stat status;
    assert_int_equal(stat("rank1.json", &status), 0);
    FILE *file = fopen("rank1.json", "r+");
    assert_non_null(file);
    for (int round = 0; round < 200; round++) {
        const int at = test_random_int(random, 1000, (int)status.st_size - 1);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        const int right = fgetc(file);
        for (int repaired = 0; repaired < 2; repaired++) {
            assert_int_equal(fseek(file, at, SEEK_SET), 0);
            fputc(repaired ? right : test_random_int(random, 0, 255), file);
            fflush(file);
            if (!repaired)
                read_seen("rank1.json", &damaged, &header);
        }
        const int sure = (int)(0.9 * whole.count * (double)at / (double)status.st_size) - 12;
        for (int i = 0; i < sure; i++)
            assert_int_equal(damaged.digest[i], whole.digest[i]);
    }
    fclose(file);
}

static const struct {
    const char *name; /* in microseconds */
    int64_t ns;
} times[] = {{"0", 0},
             {"4776195444846.642", 4776195444846642},
             {"1.5", 1500},
             {"-2.001", -2001},
             {"7.12345", 7123},
             {"0.001", 1},
             {"1.5e+03", 1500000},
             {"99999999999999999999", 0},
             {"nonsense", 0}};

TEST_EACH(microseconds_are_exact, times, time) {
    assert_int_equal(kineto_nanoseconds(time->name, strlen(time->name)), time->ns);
}

/* As torch 2.0 writes them of Python's frames. */
/* What torch does not escape is kept, but for dictionaries, whose end can't be told. */
TEST(names_may_have_quotes) {
    static const char *const names[][2] = {{"say \"hi\"", "say 'hi'"},
                                           {"f(\"a\", \"b\") \"", "f('a', 'b') '"},
                                           {"{\"a\": \"b\"}", "{'a': 'b'}"},
                                           {"\\dim \\u12 \\\\ \\\"", "/dim /u12 \\ \""},
                                           {"\xff\xc3", "\xff\xc3"},
                                           {"a\\\", \\\"b\\\"}, \\u0062", "a\", \"b\"}, b"},
                                           {"x = 1\n(1):\t<module>", "x = 1 (1): <module>"},
                                           {"{\"a\": \"b\", \"c\": 1}", NULL}};
    static struct seen seen;
    struct kineto_header header;
    char text[500];
    for (size_t i = 0; i < MP_LENGTH(names); i++) {
        snprintf(
            text, sizeof text,
            "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"ts\": 1, \"dur\": 1, "
            "\"args\": {\"x\": \"\", \"a \\\"b\": [\"\", \"c \"d\" e\" , 1]}, \"name\": \"%s\"}, "
            "{\"ph\": \"M\", \"cat\": \"\" } ] }",
            names[i][0]);
        write_file("quotes.json", text);
        read_seen("quotes.json", &seen, &header);
        if (!names[i][1]) {
            assert_contains(header.damage, "near byte 1");
        } else {
            assert_string_equal(header.damage, "");
            assert_string_equal(seen.name, names[i][1]);
        }
    }
}

/* As torch writes numbers that are none, wherever a chunk of the file ends. */
TEST(numbers_may_be_none) {
    enum { BLANKS = 1 << 16 };
    static char text[BLANKS + 1000];
    static struct seen seen, usual;
    struct kineto_header header;
    for (int none = 0; none < 2; none++)
        for (int before = none ? BLANKS - 500 : 0; before < (none ? BLANKS : 1); before++) {
            snprintf(text, sizeof text,
                     "{\"traceEvents\": [%*s{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": "
                     "\"inf \\\"nan\", \"ts\": 1, \"dur\": 1, \"args\": {\"scope\": \"%s\", "
                     "\"bandwidth\": %s, \"sm\": [%s, %s, true], \"correlation\": 7}}]}",
                     before, "", none ? "a \"b\", \"a long word\" \\u00" : "", none ? "inf" : "1",
                     none ? "-nan" : "2", none ? "-Infinity" : "3");
            write_file("none.json", text);
            read_seen("none.json", none ? &seen : &usual, &header);
            assert_string_equal(header.damage, "");
            assert_numbers(usual.count, 1, header.events, 1);
            assert_string_equal(usual.name, "inf \"nan");
            assert_true(!none || seen.digest[0] == usual.digest[0]);
        }
}

/* What lies 70 years and more from where times count from is damage. */
TEST(times_of_no_clock_are_left_out) {
    static struct seen seen;
    struct kineto_header header;
    write_file("far.json",
               "{\"baseTimeNanoseconds\": 9000000000000000000, \"traceEvents\": [\n"
               "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\", \"ts\": 3e15, \"dur\": 1},\n"
               "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"b\", \"ts\": 1, \"dur\": 3e15},\n"
               "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"c\", \"ts\": -3e15, \"dur\": 1},\n"
               "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"d\", \"ts\": 2e15, \"dur\": 1}]}");
    read_seen("far.json", &seen, &header);
    assert_numbers(header.events, 4, header.base_ns, 0);
    assert_int_equal(seen.count, 1);
}

static const struct {
    const char *name;
    enum kineto_function function;
} functions[] = {{"gloo:all_to_all", KINETO_ALL_TO_ALL},
                 {"c10d::alltoall_base_", KINETO_ALL_TO_ALL},
                 {"c10d::_allgather_base_", KINETO_ALL_GATHER},
                 {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", KINETO_ALL_REDUCE},
                 {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", KINETO_REDUCE_SCATTER},
                 {"gloo:gather", KINETO_GATHER},
                 {"gloo:reduce", KINETO_REDUCE},
                 {"gloo:barrier", KINETO_BARRIER},
                 {"gemm", KINETO_FUNCTIONS}};

TEST_EACH(functions_are_known_in_any_spelling, functions, known) {
    assert_int_equal(kineto_function_of(known->name), known->function);
}

static const struct {
    const char *name, *rank;
} files[] = {{"rank3.json", "rank 3,"},
             {"trace_rank_12.json", "rank 12,"},
             {"step5.Rank-7.pt.json", "rank 7,"},
             {"trace_4_.json", "rank 4,"},
             {"t.11.json", "rank 11,"},
             {"host_4711.6.1727433600123456789.pt.trace.json", "rank 6,"},
             {"host_4711.1727433600123456789.pt.trace.json", NULL},
             {"trace.json", NULL},
             {"x2.json", NULL},
             {"rank.json", NULL}};

/* A process's rank, of a file that does not say it. */
TEST_EACH(names_say_ranks, files, file) {
    static const char text[] =
        "{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\", \"cat\": "
        "\"user_annotation\", \"name\": \"a\", \"pid\": 4711, \"tid\": 1, \"ts\": 1, \"dur\": 2}]}";
    const struct mp_rules rules = {0};
    const struct mp_recording_format *format = mp_recording_format_named("pytorch");
    struct mp_recording *recording;
    assert_int_equal(mkdir("spools", 0700), 0);
    write_file(file->name, text);
    assert_ptr_equal(mp_recording_recognise(file->name, NULL), format);
    assert_works(mp_recording_create("spools", "test", &recording, &error));
    if (file->rank) { /* a second one of this rank is refused, which names it */
        assert_works(format->read(file->name, &rules, recording, &error));
        assert_fails(format->read(file->name, &rules, recording, &error), MP_EINVAL, file->rank);
    } else {
        assert_fails(format->read(file->name, &rules, recording, &error), MP_EFORMAT, "");
    }
    mp_recording_destroy(recording);
    assert_int_equal(rmdir("spools"), 0);
}

TEST_GROUP(enter_folder, leave_folder);
