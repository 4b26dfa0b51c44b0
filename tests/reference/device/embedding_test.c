/* Embedding: rows by hand, gradients as sums in double precision. */
#include "tests/reference/device/device_support.h"

struct embedding_case {
    int sequences, sequence, width, vocabulary;
};

static void embedding_matches(struct mp_device *device, const void *argument) {
    const struct embedding_case *c = argument;
    int tokens = c->sequences * c->sequence, width = c->width;
    size_t size = (size_t)(tokens * width), table = (size_t)(c->vocabulary * width);
    size_t positions = (size_t)(c->sequence * width);
    float *token_table = random_floats(table, 1), *position_table = random_floats(positions, 1);
    float *out = new_floats(size), *dout = random_floats(size, 1);
    float *dtoken = random_floats(table, 1), *dposition = random_floats(positions, 1);
    int32_t *token = new_ints((size_t)tokens);
    for (int n = 0; n < tokens; n++)
        token[n] = test_random_int(&random_state, 0, c->vocabulary - 1);

    double *expected_token = to_doubles(dtoken, table);
    double *expected_position = to_doubles(dposition, positions);
    perform(device, embedding_forward, tokens, c->sequence, width, token, token_table,
            position_table, out);
    perform(device, embedding_backward, tokens, c->sequence, width, token, dout, dtoken, dposition);
    for (int n = 0; n < tokens; n++) {
        for (int i = 0; i < width; i++) {
            int from = token[n] * width + i, at = n % c->sequence * width + i;
            assert_close(out[n * width + i], token_table[from] + position_table[at], 0);
            expected_token[from] += dout[n * width + i];
            expected_position[at] += dout[n * width + i];
        }
    }
    assert_floats_close(dtoken, expected_token, table, 3e-6);
    assert_floats_close(dposition, expected_position, positions, 3e-6);
}

#define EMBEDDING(name, ...)                                                                       \
    {                                                                                              \
        name, embedding_matches, &(const struct embedding_case) {                                  \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct device_test tests[] = {
    EMBEDDING("bytes", 3, 16, 64, 256),
    EMBEDDING("odd width", 2, 9, 13, 5),
    EMBEDDING("one token", 1, 1, 33, 7),
    EMBEDDING("one word again and again", 4, 5, 100, 1),
    EMBEDDING("enough for threads", 4, 100, 190, 50),
    EMBEDDING("no tokens", 0, 8, 16, 4),
};

int main(void) {
    return run_device_tests("embedding", tests, sizeof tests / sizeof *tests);
}
