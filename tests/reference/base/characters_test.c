/* What others wrote is shown without acting on the terminal. */
#include "reference/base/characters.h"

#include "tests/support.h"

TEST(what_acts_on_a_terminal_is_replaced) {
    static const char *const pairs[][2] = {
        {"", ""},
        {"plain words, 100 % of them: \"'\\", "plain words, 100 % of them: \"'\\"},
        {"caf\xc3\xa9 \xe2\x80\xa6 \xe4\xb8\xad \xf0\x9f\x90\xb8",
         "caf\xc3\xa9 \xe2\x80\xa6 \xe4\xb8\xad \xf0\x9f\x90\xb8"},
        {"a\x1b[31mb\a\b\tc\r\nd\x7f", "a?[31mb???c??d?"},
        {"\xc2\x9b"
         "31m",
         "?31m"}, /* the same sequence in one character */
        {"\xe2\x80\xae"
         "txt.exe",
         "?txt.exe"},
        {"\xe2\x81\xa6\xe2\x80\x8b\xef\xbb\xbf\xe2\x80\xa8\xd8\x9c\xc2\xad", "??????"},
        {"\xf3\xa0\x81\x81", "?"},
        {"\xff\xc3[\xe2\x82", "??[??"},                   /* no UTF-8: other bytes stay */
        {"\xc0\x9b\xed\xa0\x80", "?????"},                /* nor these: too long, a surrogate */
        {"\xc2\xa0\xe2\x80\xaf", "\xc2\xa0\xe2\x80\xaf"}, /* blanks */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char clean[64], own[64];
        assert_string_equal(mp_clean_text(clean, sizeof clean, pairs[i][0]), pairs[i][1]);
        strcpy(own, pairs[i][0]);
        assert_string_equal(mp_clean_text(own, sizeof own, own), pairs[i][1]);
    }
}

TEST(characters_are_not_cut) {
    static const char text[] = "a\xc3\xa9\xe4\xb8\xad";
    static const size_t lengths[] = {0, 1, 1, 3, 3, 3, 6, 6};
    for (size_t size = 1; size <= 8; size++) {
        char clean[8];
        mp_clean_text(clean, size, text);
        assert_int_equal(strlen(clean), lengths[size - 1]);
        assert_memory_equal(clean, text, lengths[size - 1]);
    }
}

/* Every character, written by hand here. */
TEST(all_characters_are_decoded) {
    for (uint32_t character = 1; character <= 0x10ffff; character++) {
        char text[5] = "";
        int length = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
        static const int first[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (int i = length - 1; i > 0; i--)
            text[i] = (char)(0x80 | (character >> 6 * (length - 1 - i) & 0x3f));
        text[0] = (char)(first[length] | (int)(character >> 6 * (length - 1)));
        uint32_t decoded = 0;
        bool is_surrogate = character >= 0xd800 && character < 0xe000;
        if (mp_character_decode(text, &decoded) != (is_surrogate ? 0 : length) ||
            decoded != character)
            fail_msg("U+%04X", (unsigned)character);
    }
}

TEST(numbers_are_whole_texts) {
    static const char *const none[] = {
        "", "x", "3x", "3 ", "3.0", "0x3", "1e1", "-1", "10", "-", "9223372036854775808"};
    int64_t value = 5;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_false(mp_whole_number(none[i], 0, i == 8 ? 9 : INT64_MAX, &value));
        assert_int_equal(value, 5);
    }
    assert_true(mp_whole_number("9", 0, 9, &value) && value == 9);
    assert_true(mp_whole_number("-9223372036854775808", INT64_MIN, 0, &value));
    assert_true(value == INT64_MIN);
}

TEST(real_numbers_may_have_a_unit) {
    static const char *const none[] = {"", " ", "x", "3x", "3%%", "nan", "inf", "-0.5", "2.5"};
    double value = 7;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_false(mp_real_number(none[i], "%", 0, 2, &value));
        assert_true(value == 7);
    }
    assert_false(mp_real_number("1%", "", 0, 2, &value));
    assert_true(mp_real_number("1.5%", "%", 0, 1.5, &value) && value == 1.5);
    assert_true(mp_real_number("0", "%", 0, 2, &value) && value == 0);
}

TEST(texts_are_added_while_there_is_room) {
    char text[12] = "";
    assert_string_equal(mp_text_add(text, sizeof text, ", ", "%s", "ep"), "ep");
    assert_string_equal(mp_text_add(text, sizeof text, ", ", "%d", 12), "ep, 12");
    assert_string_equal(mp_text_add(text, sizeof text, ", ", "%s", "fssdp"), "ep, 12, fss");
    assert_string_equal(mp_text_add(text, sizeof text, ", ", "more"), "ep, 12, fss");
    text[10] = '\0'; /* no room for what parts them */
    assert_string_equal(mp_text_add(text, sizeof text, ", ", "more"), "ep, 12, fs,");
}
