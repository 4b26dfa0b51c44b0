/* The golden files are what README.md says, and a damaged one is refused instead of misread. */
#include "tests/errors.h"
#include "tests/golden/golden.h"

TEST_END(golden, struct mp_golden *, mp_golden_close(*it))

enum { LAYERS = 2, WIDTH = 32, EXPERTS = 8, EXPERT_WIDTH = 48, SEQUENCE = 16, BATCH = 8 };
enum { STEPS = 10, VOCABULARY = 256, TOKENS = BATCH * SEQUENCE };

static const struct {
    const char *path;
    int choices;
} files[] = {
    {MOEPERF_GOLDEN_FOLDER "/gshard.bin", 2},
    {MOEPERF_GOLDEN_FOLDER "/switch.bin", 1},
    {MOEPERF_GOLDEN_FOLDER "/softmax.bin", 4},
};
enum { FILE_COUNT = sizeof(files) / sizeof(files[0]) };

static struct mp_golden *open_file(const char *path) {
    struct mp_golden *golden;
    assert_works(mp_golden_open(path, &golden, &error));
    return golden;
}

TEST(test_sizes_are_the_documented_ones) {
    static const struct {
        const char *name;
        int32_t value;
    } expected[] = {
        {"settings.layers", LAYERS},     {"settings.width", WIDTH},
        {"settings.heads", 4},           {"settings.experts", EXPERTS},
        {"settings.sequence", SEQUENCE}, {"settings.expert_width", EXPERT_WIDTH},
        {"settings.batch", BATCH},       {"settings.steps", STEPS},
    };
    for (int f = 0; f < FILE_COUNT; f++) {
        AUTO(golden) struct mp_golden *golden = open_file(files[f].path);
        for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
            const int32_t *value = mp_golden_int32(golden, expected[i].name, 1);
            assert_non_null(value);
            assert_int_equal(*value, expected[i].value);
        }
        assert_int_equal(*mp_golden_int32(golden, "settings.choices", 1), files[f].choices);
    }
}

/* Mean cross-entropy of stored logits against stored targets, in double. */
static double cross_entropy(const float *logits, const int32_t *targets) {
    double sum = 0.0;
    for (int token = 0; token < TOKENS; token++) {
        const float *row = logits + (size_t)token * VOCABULARY;
        double total = 0.0;
        for (int v = 0; v < VOCABULARY; v++)
            total += exp(row[v]);
        sum += log(total) - row[targets[token]];
    }
    return sum / TOKENS;
}

TEST(test_logits_give_the_stored_loss) {
    for (int f = 0; f < FILE_COUNT; f++) {
        AUTO(golden) struct mp_golden *golden = open_file(files[f].path);
        const float *logits = mp_golden_float(golden, "logits", (size_t)TOKENS * VOCABULARY);
        const int32_t *targets = mp_golden_int32(golden, "targets", (size_t)STEPS * TOKENS);
        const float *losses = mp_golden_float(golden, "losses", STEPS);
        assert_non_null(logits);
        assert_non_null(targets);
        assert_non_null(losses);
        assert_true(fabs(cross_entropy(logits, targets) - losses[0]) < 1e-5);
    }
}

/* Every parameter comes with a gradient and an updated value of the same size; no value is NaN,
 * training has moved it, and its gradient is zero only if no token used it. */
static void check_parameter(const struct mp_golden *golden, const char *name, size_t count,
                            bool used) {
    char gradient_name[64], after_name[64];
    snprintf(gradient_name, sizeof(gradient_name), "gradient.%s", name);
    snprintf(after_name, sizeof(after_name), "after10.%s", name);
    const float *value = mp_golden_float(golden, name, count);
    const float *gradient = mp_golden_float(golden, gradient_name, count);
    const float *after = mp_golden_float(golden, after_name, count);
    if (!value || !gradient || !after)
        fail_msg("%s, its gradient or its later value is missing", name);
    double gradient_sum = 0.0, moved = 0.0;
    for (size_t i = 0; i < count; i++) {
        gradient_sum += fabs(gradient[i]);
        moved += fabs(after[i] - value[i]);
    }
    assert_true(isfinite(gradient_sum) && (gradient_sum > 0.0) == used);
    assert_true(isfinite(moved) && moved > 0.0);
}

static bool is_chosen(const int32_t *choices, size_t count, int expert) {
    for (size_t i = 0; i < count; i++)
        if (choices[i] == expert)
            return true;
    return false;
}

static void check_layer(const struct mp_golden *golden, int layer, int choices_per_token) {
    static const struct {
        const char *name;
        size_t count;
    } parameters[] = {
        {"ln1_gain", WIDTH},       {"ln1_bias", WIDTH}, {"qkv", 3 * WIDTH * WIDTH},
        {"ln2_gain", WIDTH},       {"ln2_bias", WIDTH}, {"out", WIDTH * WIDTH},
        {"gate", WIDTH * EXPERTS},
    };
    char name[48];
    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        snprintf(name, sizeof(name), "layer.%d.%s", layer, parameters[i].name);
        check_parameter(golden, name, parameters[i].count, true);
    }
    size_t routes = (size_t)TOKENS * choices_per_token;
    const int32_t *choices = mp_golden_int32(golden, "choices", LAYERS * routes);
    assert_non_null(choices);
    for (int expert = 0; expert < EXPERTS; expert++) {
        bool used = is_chosen(choices + layer * routes, routes, expert);
        snprintf(name, sizeof(name), "layer.%d.expert.%d.w1", layer, expert);
        check_parameter(golden, name, (size_t)WIDTH * EXPERT_WIDTH, used);
        snprintf(name, sizeof(name), "layer.%d.expert.%d.w2", layer, expert);
        check_parameter(golden, name, (size_t)EXPERT_WIDTH * WIDTH, used);
    }
}

TEST(test_every_parameter_is_there) {
    for (int f = 0; f < FILE_COUNT; f++) {
        AUTO(golden) struct mp_golden *golden = open_file(files[f].path);
        check_parameter(golden, "token_table", VOCABULARY * WIDTH, true);
        check_parameter(golden, "position_table", SEQUENCE * WIDTH, true);
        check_parameter(golden, "final_gain", WIDTH, true);
        check_parameter(golden, "final_bias", WIDTH, true);
        for (int layer = 0; layer < LAYERS; layer++)
            check_layer(golden, layer, files[f].choices);
    }
}

TEST(test_choices_are_distinct_experts) {
    for (int f = 0; f < FILE_COUNT; f++) {
        AUTO(golden) struct mp_golden *golden = open_file(files[f].path);
        int k = files[f].choices;
        const int32_t *choices = mp_golden_int32(golden, "choices", (size_t)LAYERS * TOKENS * k);
        assert_non_null(choices);
        for (int row = 0; row < LAYERS * TOKENS; row++) {
            const int32_t *chosen = choices + (size_t)row * k;
            for (int i = 0; i < k; i++)
                assert_in_range(chosen[i], 0, EXPERTS - 1);
            if (k == 2)
                assert_int_not_equal(chosen[0], chosen[1]);
        }
    }
}

TEST(test_wrong_name_type_or_count_gives_null) {
    AUTO(golden) struct mp_golden *golden = open_file(files[0].path);
    assert_non_null(mp_golden_float(golden, "final_gain", WIDTH));
    assert_null(mp_golden_float(golden, "final_gai", WIDTH));
    assert_null(mp_golden_float(golden, "final_gain2", WIDTH));
    assert_null(mp_golden_float(golden, "final_gain", WIDTH - 1));
    assert_null(mp_golden_int32(golden, "final_gain", WIDTH));
    assert_null(mp_golden_float(golden, "tokens", (size_t)STEPS * TOKENS));
}

/* A file of two tensors, small enough to be damaged at every byte. */
static const unsigned char small_file[] = {
    'M',  'P',  'G',  'O',  'L', 'D', 'E', 'N',  1,   0, 0, 0, 2, 0, 0, 0, /* version, tensors */
    5,    0,    0,    0,    'f', 'i', 'r', 's',  't', 0, 0, 0,             /* name, padded */
    0,    0,    0,    0,    1,   0,   0,   0,    2,   0, 0, 0,             /* float32, [2] */
    0,    0,    0xc0, 0x3f, 0,   0,   0,   0xbf,                           /* 1.5, -0.5 */
    4,    0,    0,    0,    'n', 'e', 'x', 't',                            /* name */
    1,    0,    0,    0,    2,   0,   0,   0,    1,   0, 0, 0, 1, 0, 0, 0, /* int32, [1, 1] */
    0xfe, 0xff, 0xff, 0xff,                                                /* -2 */
};

static char scratch_path[] = "/tmp/moeperf-golden-XXXXXX";

static int open_bytes(const unsigned char *bytes, size_t size, struct mp_golden **golden,
                      struct mp_error *error) {
    FILE *file = fopen(scratch_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return mp_golden_open(scratch_path, golden, error);
}

TEST(test_small_file_is_read) {
    AUTO(golden) struct mp_golden *golden;
    assert_works(open_bytes(small_file, sizeof(small_file), &golden, &error));
    const float *first = mp_golden_float(golden, "first", 2);
    assert_non_null(first);
    assert_true(first[0] == 1.5f && first[1] == -0.5f);
    assert_int_equal(*mp_golden_int32(golden, "next", 1), -2);
}

TEST(test_every_truncation_is_refused) {
    for (size_t size = 0; size < sizeof(small_file); size++) {
        struct mp_golden *golden;
        assert_fails(open_bytes(small_file, size, &golden, &error), MP_EFORMAT, scratch_path);
        assert_null(golden);
    }
}

TEST(test_damage_is_refused) {
    static const struct {
        size_t offset;
        unsigned char value;
        int code;
    } damages[] = {
        {0, 'm', MP_EFORMAT},   /* magic */
        {8, 2, MP_EVERSION},    /* version */
        {12, 1, MP_EFORMAT},    /* one tensor: bytes are left over */
        {15, 0x80, MP_EFORMAT}, /* two thousand million tensors */
        {19, 0xff, MP_EFORMAT}, /* an endless name */
        {28, 2, MP_EFORMAT},    /* an unknown type */
        {35, 0x7f, MP_EFORMAT}, /* endless dimensions */
        {39, 0xff, MP_EFORMAT}, /* an endless tensor */
    };
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        unsigned char bytes[sizeof(small_file)];
        memcpy(bytes, small_file, sizeof(bytes));
        bytes[damages[i].offset] = damages[i].value;
        struct mp_golden *golden;
        assert_fails(open_bytes(bytes, sizeof(bytes), &golden, &error), damages[i].code, "");
        assert_null(golden);
    }
}

TEST(test_missing_file_is_named) {
    struct mp_golden *golden;
    assert_fails(mp_golden_open("/nonexistent/golden.bin", &golden, &error), MP_EIO,
                 "/nonexistent/golden.bin");
}

static int create_scratch(void **state) {
    (void)state;
    int descriptor = mkstemp(scratch_path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_scratch(void **state) {
    (void)state;
    return unlink(scratch_path);
}

TEST_GROUP(create_scratch, remove_scratch);
