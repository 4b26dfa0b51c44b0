/* Words as shells want them, whole or cut. */
#include "reference/base/shell.h"

#include <errno.h>

#include "tests/support.h"

TEST(words_are_quoted_where_that_is_needed) {
    static const char *const pairs[][2] = {
        {"out/a_b-1.db", "out/a_b-1.db"},
        {"--rate", "--rate"},
        {"a=b,c:d@e%f+g", "a=b,c:d@e%f+g"},
        {"", "''"},
        {"two words", "'two words'"},
        {"~/x", "'~/x'"},
        {"$HOME", "'$HOME'"},
        {"it's", "'it'\\''s'"},
        {"caf\xc3\xa9", "'caf\xc3\xa9'"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t length = strlen(pairs[i][1]);
        assert_int_equal(mp_shell_word(NULL, 0, pairs[i][0]), length);
        for (size_t size = 1; size < 24; size++) {
            char text[25], expected[25];
            memset(text, '#', sizeof text);
            assert_int_equal(mp_shell_word(text, size, pairs[i][0]), length);
            snprintf(expected, size, "%s", pairs[i][1]);
            assert_string_equal(text, expected);
            assert_int_equal(text[size], '#');
        }
    }
}

TEST(programs_are_found_as_a_shell_finds_them) {
    char path[64];
    setenv("PATH", "::/nonexistent:/bin:/usr/bin", 1);
    assert_true(mp_shell_search("sh", path, sizeof path));
    assert_string_equal(path, "/bin/sh");
    assert_true(mp_shell_search("/bin/sh", path, sizeof path));
    assert_string_equal(path, "/bin/sh");
    assert_false(mp_shell_search("moeperf-no-such-program", path, sizeof path));
    assert_int_equal(errno, ENOENT);
    assert_false(mp_shell_search("/bin", path, sizeof path));
    assert_int_equal(errno, EISDIR);
    assert_false(mp_shell_search("sh", path, sizeof "/bin/sh" - 1)); /* no room to say where */
    assert_int_equal(chdir("/bin"), 0);
    static const char *const here[] = {"", ":", ":/nonexistent", "/nonexistent::/",
                                       "/nonexistent:"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        setenv("PATH", here[i], 1);
        assert_true(mp_shell_search("sh", path, sizeof path));
        assert_string_equal(path, "./sh");
    }
    setenv("PATH", "/nonexistent", 1);
    assert_false(mp_shell_search("sh", path, sizeof path));
}
