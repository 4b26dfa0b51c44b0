/* Loads files: what was written is read, by any number of ranks that divides the sources, and can
 * be replayed; what is cut, damaged or of another job is refused. */
#include "reference/trainer/loads_file.h"

#include <endian.h>

#include "profiler/record/check.h"
#include "reference/model/replay.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"
#include "tests/reference/trainer/random_loads.h"

static uint64_t random_state;

static struct mp_loads_shape random_shape(void) {
    struct mp_loads_shape shape = {.sources = 1 << test_random_int(&random_state, 0, 3),
                                   .experts = test_random_int(&random_state, 4, 64),
                                   .layers = test_random_int(&random_state, 1, 4),
                                   .top_k = test_random_int(&random_state, 1, 4),
                                   .tokens = test_random_int(&random_state, 1, 300)};
    return shape;
}

static void read_ok(const char *path, const struct mp_loads_shape *job, int rank,
                    struct mp_loads *loads) {
    assert_works(mp_loads_read(path, job, rank, loads, &error));
}

TEST(every_rank_reads_its_rows) {
    for (int round = 0; round < 60; round++) {
        const struct mp_loads_shape shape = random_shape();
        int iterations = test_random_int(&random_state, 1, 5);
        AUTO(allocated) uint32_t *count = random_loads(&random_state, &shape, iterations);
        size_t bytes = (size_t)shape.experts * sizeof *count;
        write_loads("loads", &shape, iterations, count, (uint32_t)round);
        for (int ranks = 1; ranks <= shape.sources; ranks *= 2)
            for (int rank = 0; rank < ranks; rank++) {
                int own = shape.sources / ranks;
                struct mp_loads_shape job = shape;
                struct mp_loads loads;
                job.sources = ranks;
                job.tokens *= own;
                read_ok("loads", &job, rank, &loads);
                assert_numbers(loads.sources, own, loads.iterations, iterations);
                assert_int_equal(loads.digest, round);
                for (int i = 0; i < 2 * iterations; i++) /* round and round */
                    for (int l = 0; l < shape.layers; l++)
                        for (int s = 0; s < own; s++) {
                            int block = i % iterations * shape.layers + l;
                            const uint32_t *row =
                                count +
                                ((long)block * shape.sources + rank * own + s) * shape.experts;
                            assert_memory_equal(mp_loads_row(&loads, i, l, s), row, bytes);
                        }
                mp_loads_destroy(&loads);
            }
    }
}

/* Every row makes choices: each expert its count, no token an expert twice. */
TEST(what_passes_can_be_replayed) {
    for (int round = 0; round < 300; round++) {
        struct mp_loads_shape shape = random_shape();
        uint32_t row[RANDOM_LOADS_EXPERTS], made[RANDOM_LOADS_EXPERTS] = {0};
        int tokens = (int)shape.tokens, top_k = shape.top_k;
        shape.sources = 1;
        random_row(&random_state, tokens, top_k, shape.experts, row);
        assert_works(mp_loads_check(&shape, 0, 0, row, &error));
        AUTO(allocated) int32_t *choice = calloc((size_t)(tokens * top_k), sizeof *choice);
        assert_works(mp_replay_choices(tokens, top_k, shape.experts, row,
                                       test_random(&random_state), choice, &error));
        for (int i = 0; i < tokens * top_k; i++) {
            made[choice[i]]++;
            for (int other = i / top_k * top_k; other < i; other++)
                assert_int_not_equal(choice[i], choice[other]);
        }
        assert_memory_equal(made, row, (size_t)shape.experts * sizeof *row);
    }
}

TEST(impossible_loads_are_refused) {
    const struct mp_loads_shape shape = {2, 4, 3, 2, 10, false};
    const uint32_t many[] = {5, 5, 5, 5, 11, 9, 0, 0}, few[] = {5, 5, 5, 5, 6, 6, 6, 1};
    assert_sentence(mp_loads_check(&shape, 7, 2, many, &error), MP_EINVAL,
                    "iteration 7, layer 2: source 1 sends 11 routes to expert 0, "
                    "but has 10 tokens, and a token chooses an expert at most "
                    "once");
    assert_sentence(mp_loads_check(&shape, 7, 2, few, &error), MP_EINVAL,
                    "iteration 7, layer 2: source 1 has 19 routes, but the job's "
                    "10 tokens of a rank with 2 experts each have 20");
}

/* A gate that leaves choices has fewer routes, never more. */
TEST(fewer_routes_are_as_many_as_the_gate_takes) {
    const struct mp_loads_shape shape = {1, 4, 3, 2, 10, true};
    const uint32_t few[] = {5, 9, 0, 1}, many[] = {5, 6, 5, 5};
    assert_works(mp_loads_check(&shape, 0, 0, few, &error));
    assert_sentence(mp_loads_check(&shape, 0, 1, many, &error), MP_EINVAL,
                    "iteration 0, layer 1: source 0 has 21 routes, but the job's "
                    "10 tokens of a rank with 2 experts each have at most 20");
}

TEST(nothing_half_written_is_read) {
    const struct mp_loads_shape shape = {1, 4, 2, 2, 10, false};
    uint32_t count[] = {5, 5, 5, 5};
    const struct mp_load load = {.ranks = 1, .experts = 4, .count = count};
    struct mp_loads_writer *writer;
    assert_int_equal(mp_loads_writer_create("half", &shape, &writer, NULL), MP_OK);
    assert_fails(mp_loads_writer_finish(writer, true, 0, &error), MP_EINVAL, "half: 0 loads are");
    assert_int_equal(mp_loads_writer_create("half", &shape, &writer, NULL), MP_OK);
    assert_int_equal(mp_loads_write(writer, &load, NULL), MP_OK);
    assert_sentence(mp_loads_writer_finish(writer, true, 0, &error), MP_EINVAL,
                    "half: 1 loads are no iterations of 2 layers");
    assert_int_equal(access("half", F_OK), -1);
    assert_int_equal(mp_loads_writer_create("half", &shape, &writer, NULL), MP_OK);
    assert_int_equal(mp_loads_write(writer, &load, NULL), MP_OK);
    count[0] = 11;
    assert_int_equal(mp_loads_write(writer, &load, NULL), MP_EINVAL);
    assert_int_equal(mp_loads_writer_finish(writer, true, 0, NULL), MP_EINVAL);
    assert_int_equal(access("half", F_OK), -1);
    assert_sentence(mp_loads_writer_create("no/half", &shape, &writer, &error), MP_EIO,
                    "can't write no/half: No such file or directory");
}

/* Every cut and every changed byte is seen. */
TEST(damage_is_seen) {
    const struct mp_loads_shape shape = {2, 4, 2, 1, 6, false};
    AUTO(allocated) uint32_t *count = random_loads(&random_state, &shape, 3);
    struct mp_loads loads;
    write_loads("whole", &shape, 3, count, 9);
    size_t size;
    AUTO(text) char *bytes = read_bytes("whole", &size);
    assert_int_equal(size, 8 + 5 * 4 + 3 * 2 * 2 * 4 * 4 + 8);
    for (size_t i = 0; i < 2 * size; i++) {
        bool is_cut = i >= size;
        char old = bytes[i % size];
        bytes[i % size] ^= (char)(1 << test_random_int(&random_state, 0, 7));
        write_bytes("other", bytes, is_cut ? i - size : size);
        assert_fails(mp_loads_read("other", &shape, 1, &loads, &error), MP_EFORMAT,
                     i % size < 8 ? "other: is no loads file" : "other: is cut off or damaged");
        assert_null(loads.count);
        bytes[i % size] = old;
    }
}

/* A file whose checksum is right may still end inside an iteration, or have none. */
TEST(parts_of_iterations_are_refused) {
    enum { HEAD = 8 + 5 * 4, ITERATION = 2 * 2 * 4 * 4, WORDS = 2 * ITERATION / 4 };
    const struct mp_loads_shape shape = {2, 4, 2, 1, 6, false};
    AUTO(allocated) uint32_t *count = random_loads(&random_state, &shape, 2);
    size_t all;
    write_loads("whole", &shape, 2, count, 9);
    AUTO(text) char *bytes = read_bytes("whole", &all);
    assert_int_equal(all, HEAD + 2 * ITERATION + 8);
    for (size_t words = 0; words <= WORDS; words++) {
        size_t size = HEAD + 4 * words;
        uint32_t check = htole32(spool_crc32_on(spool_crc32(bytes, size), "9876", 4));
        struct mp_loads loads;
        FILE *file = fopen("other", "wb");
        fwrite(bytes, 1, size, file);
        fwrite("9876", 1, 4, file); /* a digest */
        fwrite(&check, sizeof check, 1, file);
        fclose(file);
        bool whole = words > 0 && 4 * words % ITERATION == 0;
        assert_sentence(mp_loads_read("other", &shape, 1, &loads, &error),
                        whole ? MP_OK : MP_EFORMAT,
                        whole ? "" : "other: ends inside an iteration; it is no whole loads file");
        if (whole)
            assert_int_equal(loads.iterations, 4 * words / ITERATION);
        mp_loads_destroy(&loads);
    }
}

TEST(others_loads_are_refused) {
    const struct mp_loads_shape shape = {4, 8, 2, 2, 16, false};
    const struct mp_loads_shape wrong[] = {{3, 8, 2, 2, 16, false}, {4, 7, 2, 2, 16, false},
                                           {4, 8, 3, 2, 16, false}, {4, 8, 2, 1, 16, false},
                                           {4, 8, 2, 2, 15, false}, {2, 8, 2, 2, 16, false},
                                           {8, 8, 2, 2, 8, false}};
    AUTO(allocated) uint32_t *count = random_loads(&random_state, &shape, 1);
    struct mp_loads loads;
    write_loads("loads", &shape, 1, count, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_fails(mp_loads_read("loads", &wrong[i], 0, &loads, &error), MP_EINVAL,
                     "loads: has loads of 4 sources with 16 tokens to 2 of 8 "
                     "experts in 2 layers; the job has ");
    }
    assert_sentence(mp_loads_read("gone", &shape, 0, &loads, &error), MP_ENOTFOUND,
                    "can't read gone: No such file or directory");
    write_file("text", "a text that is long enough to be a head of something, but is none");
    assert_sentence(mp_loads_read("text", &shape, 0, &loads, &error), MP_EFORMAT,
                    "text: is no loads file; moeperf run makes one from a suite's trace");
}

TEST_SEED(random_state);
TEST_GROUP(enter_folder, leave_folder);
