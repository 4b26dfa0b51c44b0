/* Digests tell texts and their ends apart. */
#include "reference/base/digest.h"
#include "tests/support.h"

TEST(texts_have_an_end) {
    static const char *const pairs[][2] = {{"", ""},    {"ab", "c"}, {"a", "bc"}, {"", "abc"},
                                           {"abc", ""}, {"c", "ab"}, {"a", "b"}};
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    for (int i = 0; i < PAIRS; i++)
        for (int j = 0; j < PAIRS; j++) {
            uint64_t one = mp_digest(mp_digest(MP_DIGEST, pairs[i][0]), pairs[i][1]);
            uint64_t other = mp_digest(mp_digest(MP_DIGEST, pairs[j][0]), pairs[j][1]);
            assert_int_equal(one == other, i == j);
        }
    uint64_t foobar = MP_DIGEST; /* as the authors of FNV have it */
    for (const char *at = "foobar"; *at; at++)
        foobar = mp_digest_byte(foobar, (unsigned char)*at);
    assert_true(foobar == UINT64_C(0x85944171f73967e8));
}
