/* The predictor: the same inputs give the same bits, and what a job's options mean in it. */
#include "reference/model/replay.h"
#include "tests/harness/predict/predictor_support.h"

static void mix(uint64_t *hash, const void *data, size_t size) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < size; i++)
        *hash = (*hash ^ byte[i]) * 0x100000001B3u;
}

static void mix_span(void *context, int rank, UNUSED enum mp_predict_stream stream,
                     const struct mp_span *span) {
    mix(context, &rank, sizeof rank);
    mix(context, span, sizeof *span);
}

/* Everything that three iterations say; without spans if `sink` is off.  Rows are kept until
 * backward up to so many bytes. */
static uint64_t hash_of(struct test_case *test, uint64_t seed, bool with_sink, size_t kept,
                        struct mp_prediction prediction[3]) {
    uint64_t hash = 0xCBF29CE484222325u;
    const struct mp_predict_sink sink = {.context = &hash, .span = mix_span};
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(test, with_sink ? &sink : NULL);
    predictor->rows.kept_limit = kept;
    for (int i = 0; i < 3; i++) {
        test_fill_loads(test, &seed, 0.9);
        prediction[i] = test_step(predictor, test);
        mix(&hash, prediction[i].layer_seconds, (size_t)test->job.job.layers * sizeof(double));
        prediction[i].layer_seconds = NULL; /* wherever they lie */
        assert_true(predictor->rows.kept_bytes <= kept &&
                    (predictor->rows.kept_bytes > 0 || kept < SIZE_MAX));
    }
    return hash;
}

TEST_RANDOM(same_inputs_same_bytes) {
    struct mp_systems systems = {0};
    assert_works(mp_systems_register_all(&systems, &error));
    for (int s = 0; s < systems.count; s++) {
        struct mp_prediction first[3], again[3];
        uint64_t seed = test_random(random);
        AUTO(test) struct test_case test = test_random_case(random, systems.item[s]->name);
        uint64_t hash = hash_of(&test, seed, true, SIZE_MAX, first);
        assert_true(hash == hash_of(&test, seed, true, SIZE_MAX, again));
        assert_memory_equal(first, again, sizeof first);
        /* Whether anybody listens, and whether backward plans again, makes no difference. */
        hash_of(&test, seed, false, SIZE_MAX, again);
        assert_memory_equal(first, again, sizeof first);
        for (size_t kept = 0; kept <= 100000; kept += 50000) { /* none, and some of the layers */
            assert_true(hash == hash_of(&test, seed, true, kept, again));
            assert_memory_equal(first, again, sizeof first);
        }
    }
}

TEST(loads_of_another_shape_are_refused) {
    struct mp_prediction prediction;
    AUTO(test) struct test_case test = test_make(&GOOD_MACHINE, "ep", 2, 8, 1);
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
    test.load[1].experts = 7;
    assert_fails(mp_predictor_step(predictor, test.load, &prediction, &error), MP_EINVAL, "layer 1",
                 "7 experts");
    test.load[1].experts = 8;
}

enum { MICRO_BATCHES = 2, LAYERS = 2, EXPERTS = 8, LIMIT = 3 };

/* Whether plans are checked or not: less work is no speed. */
TEST_RANDOM(drops_are_declared) {
    AUTO(test) struct test_case test = test_make(&GOOD_MACHINE, "deepspeed", LAYERS, EXPERTS, 1);
    struct mp_system undeclared = *test.job.system;
    undeclared.capabilities &= ~(unsigned)MP_SYSTEM_DROPS;
    test_fill_loads(&test, random, 0.9);
    for (int declared = 0; declared < 2; declared++) {
        struct mp_job_file job = test.job;
        struct mp_prediction prediction;
        struct mp_error said = {0};
        job.system = declared ? test.job.system : &undeclared;
        const struct mp_predictor_config config = {
            .cluster = test.cluster, .job = &job, .options = &test.options};
        AUTO(predictor) struct mp_predictor *predictor = NULL;
        assert_works(mp_predictor_create(&config, &predictor, &error));
        assert_int_equal(mp_predictor_step(predictor, test.load, &prediction, &said),
                         declared ? MP_OK : MP_EPLAN);
        assert_true(!declared || prediction.dropped > 0);
    }
}

struct seen_loads {
    uint32_t count[2][16][16];
};

static void see_load(void *context, int rank, UNUSED int64_t iteration, int layer, int experts,
                     const uint32_t routes[], const uint32_t dropped[]) {
    struct seen_loads *seen = context;
    for (int e = 0; e < experts; e++) {
        seen->count[layer][rank][e] = routes[e];
        assert_true(!dropped || dropped[e] == 0);
    }
}

/* What becomes of a source's loads of a layer, with experts inside where contiguous owners have
 * them. */
typedef void keep_inside(const struct test_case *test, const bool inside[], uint32_t row[]);

/* Every source's loads are as the rule leaves them in every micro-batch; no route is lost. */
static void assert_kept(struct test_case *test, uint64_t *random, keep_inside *keep) {
    struct seen_loads seen;
    const int ranks = test->job.job.ranks, per_node = test->job.job.ranks_per_node;
    int changed = 0;
    assert_true(ranks > per_node && ranks % per_node == 0 && ranks <= 16);
    test_fill_loads(test, random, 0.5);
    const struct mp_predict_sink sink = {.context = &seen, .load = see_load};
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(test, &sink);
    struct mp_prediction prediction = test_step(predictor, test);
    assert_int_equal(prediction.routes,
                     (int64_t)ranks * test_routes(test) * LAYERS * test->options.micro_batches);
    assert_int_equal(prediction.dropped, 0);
    for (int l = 0; l < LAYERS; l++)
        for (int r = 0; r < ranks; r++) {
            uint32_t expected[EXPERTS] = {0};
            for (int m = 0; m < test->options.micro_batches; m++) {
                const struct mp_load *load = &test->load[m * LAYERS + l];
                uint32_t row[EXPERTS];
                bool inside[EXPERTS];
                for (int e = 0; e < EXPERTS; e++) {
                    inside[e] = e * ranks / EXPERTS / per_node == r / per_node;
                    row[e] = mp_load_at(load, r, e);
                }
                keep(test, inside, row);
                for (int e = 0; e < EXPERTS; e++) {
                    expected[e] += row[e];
                    changed += row[e] != mp_load_at(load, r, e);
                }
            }
            for (int e = 0; e < EXPERTS; e++)
                assert_int_equal(seen.count[l][r][e], expected[e]);
        }
    assert_true(changed > 0);
}

static void limit(UNUSED const struct test_case *test, const bool inside[], uint32_t row[]) {
    mp_replay_limit(EXPERTS, inside, LIMIT, row);
}

/* FasterMoE's topology-aware gate in predictions. */
TEST_RANDOM(a_gate_that_keeps_tokens_home_is_predicted) {
    AUTO(test)
    struct test_case test = test_make(&GOOD_MACHINE, "fastermoe options.topology-gate=yes", LAYERS,
                                      EXPERTS, MICRO_BATCHES);
    test_set(&test,
             formatted("options.outgoing-fraction=%.9f", (LIMIT + 0.5) / (test_routes(&test) / 2)));
    assert_kept(&test, random, limit);
}

static void pull(const struct test_case *test, const bool inside[], uint32_t row[]) {
    const int ranks = test->job.job.ranks, per_node = test->job.job.ranks_per_node;
    const double share = per_node / (per_node + (ranks - per_node) / 5.0);
    mp_replay_pull(EXPERTS, inside, share, 0.7, test_routes(test) / 2, row);
}

/* TA-MoE's loss in predictions. */
TEST_RANDOM(a_loss_that_knows_the_topology_is_predicted) {
    AUTO(test)
    struct test_case test = test_make(
        &GOOD_MACHINE, "tamoe options.pull=0.7 options.outside-cost=5", LAYERS, EXPERTS, 1);
    assert_kept(&test, random, pull);
}

/* With room for all tokens it is no gate at all, to the last bit; so it is with loads that this
 * gate has made. */
TEST(a_gate_with_room_changes_nothing) {
    static const char *const systems[] = {
        "fastermoe", "fastermoe options.topology-gate=yes options.outgoing-fraction=1",
        "fastermoe options.topology-gate=yes"};
    struct mp_prediction prediction[3];
    uint64_t random = test_seed();
    for (int i = 0; i < 3; i++) {
        uint64_t same = random;
        AUTO(test) struct test_case test = test_make(&GOOD_MACHINE, systems[i], 2, 8, 1);
        test_fill_loads(&test, &same, 0.5);
        const struct mp_predictor_config config = {.cluster = test.cluster,
                                                   .job = &test.job,
                                                   .options = &test.options,
                                                   .is_gated = i == 2};
        AUTO(predictor) struct mp_predictor *predictor = NULL;
        assert_works(mp_predictor_create(&config, &predictor, &error));
        prediction[i] = test_step(predictor, &test);
    }
    for (int i = 1; i < 3; i++) {
        assert_close(prediction[i].seconds, prediction[0].seconds, 0);
        assert_close(prediction[i].exchanged_bytes, prediction[0].exchanged_bytes, 0);
        assert_close(prediction[i].imbalance, prediction[0].imbalance, 0);
    }
}

static const struct {
    enum mp_phase phase;
    int direction;
} products[] = {{MP_PHASE_DISPATCH, MP_FORWARD},
                {MP_PHASE_COMBINE, MP_FORWARD},
                {MP_PHASE_COMBINE, MP_BACKWARD},
                {MP_PHASE_DISPATCH, MP_BACKWARD}};

/* The rank's own work is longer by all products with the matrices, shorter by rows copied. */
TEST_RANDOM(one_hot_dispatch_costs_its_products) {
    struct mp_prediction prediction[2];
    struct mp_memory memory[2];
    double products_seconds = 0;
    int rank;
    for (int one_hot = 0; one_hot < 2; one_hot++) {
        AUTO(test)
        struct test_case test = test_make(&GOOD_MACHINE,
                                          one_hot ? "deepspeed options.dispatch=one-hot"
                                                  : "deepspeed options.dispatch=sparse",
                                          3, 16, 1);
        test_fill_loads(&test, random, 0.3);
        AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
        const struct mp_costs *costs = predictor->costs;
        assert_works(mp_predictor_step(predictor, test.load, &prediction[one_hot], &error));
        mp_predictor_memory(predictor, &memory[one_hot], &rank);
        int64_t rows = 16 * 64; /* 512 tokens to 2 of 16 experts */
        for (size_t i = 0; one_hot && i < sizeof products / sizeof *products; i++)
            products_seconds +=
                3 * mp_costs_one_hot(costs, rows, products[i].phase, products[i].direction);
        products_seconds -= one_hot ? 3 * 4 * mp_costs_permute(costs, rows) : 0;
    }
    assert_close(prediction[1].compute_seconds - prediction[0].compute_seconds, products_seconds,
                 1e-6);
    assert_true(products_seconds > 0);
    assert_close(memory[1].total - memory[0].total, 16 * 64 * 512 * (3 * 4 + 5), 1e-9);
}

/* No row of a token travels twice, however many chunks there are; when they do is another matter.
 */
TEST(chunks_of_tokens_have_the_same_rows) {
    struct mp_prediction prediction[MP_MOST_DEGREE + 1];
    uint64_t random = test_seed();
    for (int degree = 1; degree <= MP_MOST_DEGREE; degree++) {
        uint64_t same = random;
        AUTO(test)
        struct test_case test =
            test_make(&GOOD_MACHINE, formatted("deepep exchange-degree=%d", degree), 2, 16, 1);
        test_fill_loads(&test, &same, 0.5);
        AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
        prediction[degree] = test_step(predictor, &test);
        assert_close(prediction[degree].exchanged_bytes, prediction[1].exchanged_bytes, 1e-6);
    }
    assert_true(prediction[2].seconds != prediction[1].seconds);
}

/* Copies of ranks and experts in any word of the bits; none, if the plan has none. */
TEST(late_copies_are_told_apart) {
    enum { WORDS = 2, RANKS = 64 * WORDS };
    for (int expert = 0; expert < EXPERTS; expert++)
        for (int rank = 0; rank < RANKS; rank++) {
            uint64_t bits[EXPERTS * WORDS] = {0};
            const struct mp_late_copies some = {true, WORDS, bits}, none = {false, WORDS, bits};
            bits[expert * WORDS + rank / 64] = UINT64_C(1) << rank % 64;
            for (int i = 0; i < EXPERTS * RANKS; i++) {
                assert_int_equal(mp_is_late(&some, i / RANKS, i % RANKS),
                                 i == expert * RANKS + rank);
                assert_false(mp_is_late(&none, i / RANKS, i % RANKS));
            }
        }
}
