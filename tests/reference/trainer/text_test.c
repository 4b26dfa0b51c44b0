/* Text: which files in which order, its digest, its refusals, and batches that depend on nothing
 * but seed, iteration and sequence. */
#include "reference/trainer/batch.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(words, struct mp_text, mp_text_destroy(it))

static uint64_t random_state;

static void load(const char *paths, struct mp_text *text) {
    assert_works(mp_text_load(paths, 0, 1, 0, text, &error));
}

static void assert_text(const char *paths, const char *expected, int files) {
    AUTO(words) struct mp_text text;
    load(paths, &text);
    if (text.size != strlen(expected) || memcmp(text.byte, expected, text.size) != 0)
        fail_msg("%s holds %.*s, not %s", paths, (int)text.size, (char *)text.byte, expected);
    assert_int_equal(text.files, files);
}

TEST(folders_are_read_in_the_order_of_paths) {
    assert_int_equal(mkdir("tree", 0777) | mkdir("tree/a", 0777) | mkdir("tree/a/z", 0777) |
                         mkdir("tree/empty", 0777) | mkdir("tree/b", 0777),
                     0);
    /* As `find tree -type f | LC_ALL=C sort` lists them: '-' and '.' come before '/'. */
    static const char *const files[][2] = {
        {"tree/B", "[B]"},       {"tree/a-c", "[a-c]"},   {"tree/a.txt", "[a.txt]"},
        {"tree/a/1", "[a/1]"},   {"tree/a/z.", "[a/z.]"}, {"tree/a/z/y", "[a/z/y]"},
        {"tree/a/z0", "[a/z0]"}, {"tree/a0", "[a0]"},     {"tree/b/\xc3\xa4", "[b/ae]"},
        {"tree/b/nothing", ""},  {"tree/ba", "[ba]"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_file(files[i][0], files[i][1]);
    const char *all = "[B][a-c][a.txt][a/1][a/z.][a/z/y][a/z0][a0][b/ae][ba]";
    assert_text("tree", all, 10); /* a file without a byte is none */
    assert_text("tree/", all, 10);
    assert_text("tree/b:tree/a/z:tree/B", "[b/ae][a/z/y][B]", 3); /* as listed */
    assert_text("tree/B::tree/B:", "[B][B]", 2);
    assert_int_equal(symlink("../a/z", "tree/b/link"), 0);
    assert_text("tree/b", "[a/z/y][b/ae]", 2); /* links are followed */
}

TEST(the_digest_is_that_of_the_concatenation) {
    struct mp_text text;
    write_file("abc", "abc");
    load("abc", &text);
    assert_string_equal(text.digest, "06b05ab6733a618578af5f94892f3950"); /* xxhsum -H2 */
    mp_text_destroy(&text);
    XXH3_state_t *hash = XXH3_createState();
    XXH3_128bits_reset(hash);
    char paths[256] = "";
    for (int f = 0; f < 7; f++) {
        char name[16];
        static unsigned char byte[200000];
        size_t size = (size_t)test_random_int(&random_state, 1, sizeof byte);
        for (size_t i = 0; i < size; i++)
            byte[i] = (unsigned char)test_random(&random_state);
        snprintf(name, sizeof name, "part-%d", f);
        FILE *file = fopen(name, "wb");
        assert_int_equal(fwrite(byte, 1, size, file), size);
        fclose(file);
        XXH3_128bits_update(hash, byte, size);
        snprintf(paths + strlen(paths), 32, "%s%s", f ? ":" : "", name);
    }
    XXH128_canonical_t canonical;
    char expected[40] = "";
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(expected + 2 * i, 3, "%02x", canonical.digest[i]);
    XXH3_freeState(hash);
    load(paths, &text);
    assert_string_equal(text.digest, expected);
    assert_int_equal(text.files, 7);
    mp_text_destroy(&text);
}

TEST(text_is_split_for_validation) {
    AUTO(words) struct mp_text text;
    write_file("hundred", "0123456789012345678901234567890123456789012345678901234567890123456789"
                          "012345678901234567890123456789");
    assert_works(mp_text_load("hundred", 0.25, 75, 25, &text, &error));
    assert_numbers(text.training, 75, text.size, 100);
}

TEST(bad_texts_are_refused) {
    write_file("void", "");
    assert_int_equal(mkdir("bare", 0777), 0);
    static const struct {
        const char *paths;
        double share;
        size_t training, validation;
        int code;
        const char *first, *second;
    } cases[] = {
        {"hundred", 0.25, 76, 0, MP_EINVAL, "75 bytes for training", "needs 76"},
        {"hundred", 0.25, 10, 26, MP_EINVAL, "25 bytes for validation", "needs 26"},
        {"hundred", 0, 10, 9, MP_EINVAL, "0 bytes for validation", "needs 9"},
        {"void", 0, 1, 0, MP_EINVAL, "text void", "not one byte"},
        {"bare", 0, 1, 0, MP_EINVAL, "text bare", "not one byte"},
        {"", 0, 1, 0, MP_EINVAL, "text ", "not one byte"},
        {"hundred:nowhere/at/all", 0, 1, 0, MP_ENOTFOUND, "text nowhere/at/all", "No such file"},
        {"/proc/self/mem", 0, 1, 0, MP_EIO, "text /proc/self/mem", "error"}, /* opens, won't read */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mp_text text;
        assert_fails(mp_text_load(cases[i].paths, cases[i].share, cases[i].training,
                                  cases[i].validation, &text, &error),
                     cases[i].code, cases[i].first, cases[i].second);
        assert_null(text.byte);
    }
}

TEST(a_file_without_permission_is_named) {
    enum { NOBODY = 65534 };
    struct mp_text text;
    struct mp_error error = {0};
    write_file("locked", "secret");
    assert_int_equal(chmod("locked", 0), 0);
    assert_int_equal(chmod(".", 0755), 0);
    /* Root may read any file, so it stops being root for a moment. */
    bool root = geteuid() == 0;
    assert_true(!root || seteuid(NOBODY) == 0);
    int code = mp_text_load("locked", 0, 1, 0, &text, &error);
    assert_true(!root || seteuid(0) == 0);
    assert_int_equal(code, MP_EIO);
    assert_string_equal(error.text, "text locked: Permission denied");
}

enum { SIZE = 30000, SEQUENCE = 24 };

/* A text of random bytes: 24 of them are where they are found, and nowhere else. */
static struct mp_text random_text(void) {
    struct mp_text text = {.byte = malloc(SIZE), .size = SIZE, .training = SIZE - SIZE / 5};
    for (int i = 0; i < SIZE; i++)
        text.byte[i] = (unsigned char)test_random(&random_state);
    return text;
}

/* Where the tokens are in the text; the targets must be the bytes one further. */
static size_t place_of(const struct mp_text *text, const int32_t *token, const int32_t *target) {
    unsigned char byte[SEQUENCE + 1];
    for (int s = 0; s < SEQUENCE; s++) {
        byte[s] = (unsigned char)token[s];
        if (s)
            assert_int_equal(target[s - 1], token[s]);
    }
    byte[SEQUENCE] = (unsigned char)target[SEQUENCE - 1];
    const unsigned char *at = memmem(text->byte, text->size, byte, sizeof byte);
    assert_non_null(at);
    return (size_t)(at - text->byte);
}

TEST(batches_depend_on_seed_iteration_and_sequence) {
    enum { BATCH = 12, ITERATIONS = 100 };
    AUTO(words) struct mp_text text = random_text();
    uint64_t seed = test_random(&random_state);
    int32_t token[SEQUENCE], target[SEQUENCE], again[SEQUENCE], next[SEQUENCE];
    size_t least = SIZE, most = 0, before = SIZE;
    int repeated = 0;
    for (int i = 0; i < ITERATIONS; i++)
        for (int b = 0; b < BATCH; b++) {
            mp_text_part(&text, seed, i, b, SEQUENCE, 0, SEQUENCE, token, target);
            size_t at = place_of(&text, token, target);
            assert_true(at + SEQUENCE + 1 <= text.training); /* never a byte of validation */
            least = at < least ? at : least;
            most = at > most ? at : most;
            repeated += at == before;
            before = at;
            mp_text_part(&text, seed, i, b, SEQUENCE, 0, SEQUENCE, again, next);
            assert_memory_equal(token, again, sizeof token);
            mp_text_part(&text, seed + 1, i, b, SEQUENCE, 0, SEQUENCE, again, next);
            assert_true(place_of(&text, again, next) != at || i + b > 0);
        }
    /* 1200 draws over 24000 starts come close to both ends. */
    assert_true(least < SIZE / 50 && most > text.training - SIZE / 50);
    assert_true(repeated < 3);
}

/* Iterations and sequences are counters of one stream: none must meet another's. */
TEST(no_two_sequences_share_a_counter) {
    AUTO(words) struct mp_text text = random_text();
    int32_t token[SEQUENCE], target[SEQUENCE];
    mp_text_part(&text, 1, 1, 0, SEQUENCE, 0, SEQUENCE, token, target);
    size_t first = place_of(&text, token, target);
    mp_text_part(&text, 1, 0, 1 << 23, SEQUENCE, 0, SEQUENCE, token, target);
    assert_int_not_equal(place_of(&text, token, target), first);
}

TEST(the_smallest_text_has_one_place) {
    AUTO(words) struct mp_text text = random_text();
    int32_t token[SEQUENCE], target[SEQUENCE];
    text.training = SEQUENCE + 1;
    text.size = 2 * SEQUENCE + 2;
    for (int i = 0; i < 50; i++) {
        mp_text_part(&text, 7, i, 0, SEQUENCE, 0, SEQUENCE, token, target);
        assert_int_equal(place_of(&text, token, target), 0);
        mp_text_validation(&text, i, 50, SEQUENCE, token, target);
        assert_int_equal(place_of(&text, token, target), SEQUENCE + 1);
    }
}

TEST(validation_is_spread_over_its_part) {
    AUTO(words) struct mp_text text = random_text();
    int32_t token[SEQUENCE], target[SEQUENCE];
    size_t starts = text.size - text.training - SEQUENCE;
    for (int count = 1; count < 60; count++)
        for (int index = 0; index < count; index++) {
            mp_text_validation(&text, index, count, SEQUENCE, token, target);
            size_t at = place_of(&text, token, target);
            assert_int_equal(at, text.training + starts * (size_t)index / (size_t)count);
            assert_true(at + SEQUENCE + 1 <= text.size);
        }
}

TEST_SEED(random_state);
TEST_GROUP(enter_folder, leave_folder);
