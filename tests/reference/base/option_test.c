/* Option tables: what is read, what is refused and in which words. */
#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

#include <limits.h>

#include "reference/base/option.h"

struct values {
    int group_size;
    int64_t bytes;
    double bandwidth;
    bool hidden;
    int copies;
    int fixed;
    int exchange;
    char path[MP_TEXT_SIZE];
};
#define FIELD(member) offsetof(struct values, member)

static const struct mp_option TABLE[] = {
    {"group-size", MP_OPTION_INT, FIELD(group_size), "ranks", "4", 1, 1024, NULL,
     "ranks in a step"},
    {"bytes", MP_OPTION_INT64, FIELD(bytes), "B", "0", 0, 1e18, NULL, "size of a thing"},
    {"bandwidth", MP_OPTION_DOUBLE, FIELD(bandwidth), "B/s", "1e9", 1e6, 1e13, NULL, "assumed"},
    {"hidden", MP_OPTION_BOOL, FIELD(hidden), "", "yes", 0, 0, NULL, "whether it is hidden"},
    {"copies", MP_OPTION_COUNT, FIELD(copies), "experts", "auto", -1, 64, NULL, "copies to make"},
    {"fixed", MP_OPTION_COUNT, FIELD(fixed), "", "all", 2, 64, NULL, "a count without auto"},
    {"exchange", MP_OPTION_CHOICE, FIELD(exchange), "", "flat", 0, 0, "flat pipelined hierarchical",
     "how tokens travel"},
    {"path", MP_OPTION_TEXT, FIELD(path), "", NULL, 0, 0, NULL, "a file"},
    {0},
};

struct accepted_case {
    const char *name, *text, *formatted;
};
static const struct accepted_case ACCEPTED[] = {
    {"group-size", "1", "1"},
    {"group-size", "1024", "1024"},
    {"bytes", "999999999999999999", "999999999999999999"},
    {"bandwidth", "1e13", "10000000000000"},
    {"bandwidth", "1234567.1", "1234567.1"},
    {"hidden", "off", "no"},
    {"hidden", "true", "yes"},
    {"hidden", "on", "yes"},
    {"hidden", "false", "no"},
    {"copies", "all", "all"},
    {"copies", "auto", "auto"},
    {"copies", "0", "0"},
    {"fixed", "2", "2"},
    {"exchange", "hierarchical", "hierarchical"},
    {"path", "", ""},
    {"path", "a b: c", "a b: c"},
};

static const char *format(const struct values *values, const char *name, char *buffer,
                          size_t size) {
    return mp_options_format(mp_options_find(TABLE, name), values, buffer, size);
}

TEST_ROWS(accepted_text_is_written_back, ACCEPTED, row) {
    struct values values = {0};
    char buffer[64];
    assert_works(mp_options_set(TABLE, &values, "the job", row->name, row->text, NULL, &error));
    assert_string_equal(format(&values, row->name, buffer, sizeof buffer), row->formatted);
}

TEST_RANDOM(random_numbers_survive_text) {
    for (int round = 0; round < 2000; round++) {
        struct values values = {0}, again = {0};
        char buffer[64];
        values.bandwidth = exp(log(1e6) + test_random_double(random) * log(1e7));
        values.bytes = (int64_t)(test_random(random) % 1000000000000000000u);
        format(&values, "bandwidth", buffer, sizeof buffer);
        assert_works(mp_options_set(TABLE, &again, "x", "bandwidth", buffer, NULL, &error));
        format(&values, "bytes", buffer, sizeof buffer);
        assert_works(mp_options_set(TABLE, &again, "x", "bytes", buffer, NULL, &error));
        assert_true(again.bandwidth == values.bandwidth);
        assert_int_equal(again.bytes, values.bytes);
    }
}

struct refused_case {
    const char *name, *text, *where, *sentence;
};
static const struct refused_case REFUSED[] = {
    {"group-size", "0", "suite.yaml:14", "suite.yaml:14: group-size: 0 is outside 1 .. 1024 ranks"},
    {"group-size", "1025", NULL, "group-size: 1025 is outside 1 .. 1024 ranks"},
    {"group-size", "99999999999999999999", NULL,
     "group-size: 99999999999999999999 is outside 1 .. 1024 ranks"},
    {"group-size", "4x", NULL, "group-size: \"4x\" is not a number 1 .. 1024 ranks"},
    {"group-size", "", NULL, "group-size: \"\" is not a number 1 .. 1024 ranks"},
    {"group-size", " 4", NULL, "group-size: \" 4\" is not a number 1 .. 1024 ranks"},
    {"group-size", "4.0", NULL, "group-size: \"4.0\" is not a number 1 .. 1024 ranks"},
    {"bandwidth", "fast", NULL,
     "bandwidth: \"fast\" is not a number 1000000 .. 10000000000000 B/s"},
    {"bandwidth", "nan", NULL, "bandwidth: \"nan\" is not a number 1000000 .. 10000000000000 B/s"},
    {"bandwidth", "inf", NULL, "bandwidth: inf is outside 1000000 .. 10000000000000 B/s"},
    {"hidden", "maybe", "f:2", "f:2: hidden: \"maybe\" is not yes or no"},
    {"copies", "-1", NULL, "copies: -1 is outside 0 .. 64 experts, all or auto"},
    {"copies", "65", NULL, "copies: 65 is outside 0 .. 64 experts, all or auto"},
    {"fixed", "auto", NULL, "fixed: \"auto\" is not a number 2 .. 64 or all"},
    {"fixed", "1", NULL, "fixed: 1 is outside 2 .. 64 or all"},
    {"exchange", "zzz", NULL, "exchange: \"zzz\" is not one of flat, pipelined, hierarchical"},
    {"grup-size", "4", "suite.yaml:15",
     "suite.yaml:15: unknown option \"grup-size\" for system fastermoe; did you mean "
     "\"group-size\"?"},
    {"colour", "4", NULL,
     "unknown option \"colour\" for system fastermoe; there is group-size, bytes, bandwidth, "
     "hidden, copies, fixed, exchange, path"},
};

TEST_ROWS(refused_text_is_explained, REFUSED, row) {
    struct values values = {0}, untouched = {0};
    assert_sentence(mp_options_set(TABLE, &values, "system fastermoe", row->name, row->text,
                                   row->where, &error),
                    MP_EINVAL, row->sentence);
    assert_memory_equal(&values, &untouched, sizeof values);
}

TEST(texts_have_a_length) {
    struct values values = {0};
    char text[MP_TEXT_SIZE + 1];
    memset(text, 'a', sizeof text);
    text[MP_TEXT_SIZE] = '\0';
    assert_sentence(
        mp_options_set(TABLE, &values, "x", "path", text, NULL, &error), MP_EINVAL,
        "path: 4096 characters are too many, it takes a text of at most 4095 characters");
    text[MP_TEXT_SIZE - 1] = '\0';
    assert_int_equal(mp_options_set(TABLE, &values, "x", "path", text, NULL, NULL), MP_OK);
    assert_string_equal(values.path, text);
}

TEST(unknown_options_of_a_system_without_any) {
    assert_sentence(mp_options_set(NULL, NULL, "system ep", "window", "4", "f:3", &error),
                    MP_EINVAL,
                    "f:3: unknown option \"window\" for system ep, which has no options");
    assert_works(mp_options_check(NULL, 0, "system ep", &error));
}

TEST(defaults_are_what_the_table_says) {
    struct values values;
    memset(&values, 0xA5, sizeof values);
    assert_works(mp_options_check(TABLE, sizeof values, "test", &error));
    assert_works(mp_options_set_defaults(TABLE, &values, &error));
    assert_int_equal(values.group_size, 4);
    assert_true(values.bandwidth == 1e9);
    assert_true(values.hidden);
    assert_numbers(values.copies, MP_AUTO, values.fixed, MP_ALL, values.exchange, 0);
    assert_string_equal(values.path, "");
}

/* Each row replaces the first of a table; the fault is named. */
struct faulty_case {
    struct mp_option option;
    const char *sentence;
};
static const struct faulty_case FAULTY[] = {
    {{"Group", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, "h"}, "lower-case words"},
    {{"a--b", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, "h"}, "lower-case words"},
    {{"a-", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, "h"}, "lower-case words"},
    {{"bytes", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, "h"}, "there twice"},
    {{"a", MP_OPTION_INT, sizeof(struct values), "", "1", 0, 9, NULL, "h"}, "outside the options"},
    {{"a", MP_OPTION_TEXT, FIELD(path) + 1, "", "x", 0, 9, NULL, "h"}, "outside the options"},
    {{"a", MP_OPTION_DOUBLE, 4, "", "1", 0, 9, NULL, "h"}, "not aligned"},
    {{"a", MP_OPTION_INT, 0, NULL, "1", 0, 9, NULL, "h"}, "unit is missing"},
    {{"a", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, ""}, "help is empty"},
    {{"a", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, "Stops."}, "full stop"},
    {{"a", MP_OPTION_INT, 0, "", "1", 9, 0, NULL, "h"}, "minimum is above"},
    {{"a", MP_OPTION_INT, 0, "", "1", 0, 1e10, NULL, "h"}, "wider than the field"},
    {{"a", MP_OPTION_COUNT, 0, "", "all", -2, -1, NULL, "h"}, "leaves no number"},
    {{"a", MP_OPTION_CHOICE, 0, "", "x", 0, 0, NULL, "h"}, "needs choices"},
    {{"a", MP_OPTION_CHOICE, 0, "", "x", 0, 0, "x  y", "h"}, "more than one blank"},
    {{"a", MP_OPTION_CHOICE, 0, "", "x", 0, 0, "x y x", "h"}, "there twice"},
    {{"a", MP_OPTION_INT, 0, "", "1", 0, 9, "x", "h"}, "only a choice"},
    {{"a", MP_OPTION_INT, 0, "", "10", 0, 9, NULL, "h"}, "default of a: 10 is outside 0 .. 9"},
    {{"a", MP_OPTION_CHOICE, 0, "", "z", 0, 0, "xx yy", "h"}, "default of a: \"z\" is not one of"},
    {{"a", (enum mp_option_type)99, 0, "", "1", 0, 9, NULL, "h"}, "type is unknown"},
};

TEST_ROWS(faulty_tables_are_refused, FAULTY, row) {
    struct mp_option table[sizeof TABLE / sizeof TABLE[0]];
    memcpy(table, TABLE, sizeof table);
    table[0] = row->option;
    assert_fails(mp_options_check(table, sizeof(struct values), "system test", &error), MP_EINVAL,
                 row->sentence, "system test");
}

TEST(descriptions_say_what_is_right) {
    static const char *const expected[][2] = {
        {"group-size", "a number 1 .. 1024 ranks"},
        {"hidden", "yes or no"},
        {"copies", "a number 0 .. 64 experts, all or auto"},
        {"fixed", "a number 2 .. 64 or all"},
        {"exchange", "one of flat, pipelined, hierarchical"},
        {"path", "a text of at most 4095 characters"},
    };
    char buffer[128], small[12];
    for (size_t index = 0; index < sizeof expected / sizeof expected[0]; index++)
        assert_string_equal(
            mp_options_describe(mp_options_find(TABLE, expected[index][0]), buffer, sizeof buffer),
            expected[index][1]);
    assert_string_equal(
        mp_options_describe(mp_options_find(TABLE, "exchange"), small, sizeof small),
        "one of flat");
    assert_null(mp_options_find(TABLE, "exchang"));
}

struct nearest_case {
    const char *word, *nearest;
};
static const struct nearest_case NEAREST[] = {
    {"fsdp", "fssdp"},
    {"fssdp", "fssdp"},
    {"pe", "ep"},
    {"e", "ep"},
    {"fatsermoe", "fastermoe"},
    {"eplbb", "eplb"},
    {"flexmoee", "flexmoe"},
    {"hecate", NULL},
    {"", NULL},
    {"zz", NULL},
};

TEST(nearest_words_are_near) {
    static const char *const words[] = {"ep", "fssdp", "fastermoe", "flexmoe", "eplb", NULL};
    char lengthy[200];
    for (size_t index = 0; index < sizeof NEAREST / sizeof NEAREST[0]; index++) {
        const char *found = mp_nearest_word(NEAREST[index].word, words);
        if (NEAREST[index].nearest && !found)
            fail_msg("nothing near \"%s\"", NEAREST[index].word);
        if (NEAREST[index].nearest)
            assert_string_equal(found, NEAREST[index].nearest);
        else
            assert_null(found);
    }
    memset(lengthy, 'f', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    assert_null(mp_nearest_word(lengthy, words));
}
