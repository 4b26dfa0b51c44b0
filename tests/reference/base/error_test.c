/* Errors: the first one wins and keeps its sentence. */
#include <errno.h>

#include "tests/support.h"

#include "reference/base/error.h"

TEST(the_first_failure_wins) {
    struct mp_error error = {0};
    assert_int_equal(mp_fail(&error, MP_EIO, "reading %s", "a"), MP_EIO);
    assert_int_equal(mp_fail(&error, MP_ENOMEM, "later"), MP_ENOMEM);
    assert_int_equal(error.code, MP_EIO);
    assert_string_equal(error.text, "reading a");
    assert_int_equal(mp_fail(NULL, MP_EINVAL, "nobody listens"), MP_EINVAL);
}

TEST(what_errno_says_stands_behind) {
    static const int known[][2] = {{ENOENT, MP_ENOTFOUND}, {ENOSPC, MP_ENOSPACE},
                                   {EDQUOT, MP_ENOSPACE},  {EFBIG, MP_ENOSPACE},
                                   {EACCES, MP_EIO},       {ENOTDIR, MP_EIO}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct mp_error error = {0};
        char expected[200];
        errno = known[i][0];
        assert_int_equal(mp_fail_errno(&error, "file %d", 3), known[i][1]);
        snprintf(expected, sizeof expected, "file 3: %s", strerror(known[i][0]));
        assert_string_equal(error.text, expected);
    }
}

TEST(prefixes_stack_up_in_front) {
    struct mp_error error = {0};
    assert_int_equal(mp_error_prefix(&error, "rank %d", 1), MP_OK);
    assert_string_equal(error.text, "");
    mp_fail(&error, MP_ECOMM, "no answer");
    assert_int_equal(mp_error_prefix(&error, "rank %d", 1), MP_ECOMM);
    assert_int_equal(mp_error_prefix(&error, "job %s", "a"), MP_ECOMM);
    assert_string_equal(error.text, "job a: rank 1: no answer");
    assert_int_equal(mp_error_prefix(NULL, "rank"), MP_OK);
}

TEST(long_sentences_are_cut_inside_the_text) {
    char lengthy[2 * sizeof((struct mp_error *)0)->text];
    memset(lengthy, 'x', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    for (int prefixes = 0; prefixes < 3; prefixes++) {
        struct mp_error error = {0};
        mp_fail(&error, MP_EINVAL, "%s", prefixes == 2 ? "short" : lengthy);
        if (prefixes)
            mp_error_prefix(&error, "%s", prefixes == 2 ? lengthy : "path");
        assert_int_equal(strlen(error.text), sizeof error.text - 1);
        assert_int_equal(error.text[0], prefixes == 1 ? 'p' : 'x');
    }
}
