/* Rows that nest: what a file says arrives in structs, and every slip has a line and a sentence. */
#include "reference/base/option.h"
#include <math.h>
#include <string.h>

#include "tests/errors.h"

struct leaf {
    const char *name;
    int line, count;
};
struct branch {
    const char *text, *other;
    double rate, missing;
    int colour, word;
    struct leaf leaf[3];
    int leaves;
    int number[4];
    int numbers;
    struct leaf named[2];
    int names;
    const struct mp_yaml *node, *itself;
    struct inner {
        bool flag;
        char joined[MP_TEXT_SIZE];
    } inner;
    int form;
};

static int read_form(const struct mp_reading *reading, const struct mp_option *row,
                     const struct mp_yaml *value, void *field) {
    *(int *)field = value->count;
    return value->kind == MP_YAML_SEQUENCE
               ? MP_OK
               : mp_reading_fail(reading, value->line, "%s: a form needs a list", row->name);
}

#define LEAF(member) offsetof(struct leaf, member)
#define BRANCH(member) offsetof(struct branch, member)
static const char *const words[] = {"from memory", "stated", NULL};
static const struct mp_option leaf_rows[] = {
    {"", MP_OPTION_LINE, .offset = LEAF(line)},
    {"name", MP_OPTION_STRING, LEAF(name), "", NULL, 0, 0, NULL, "of the leaf"},
    {"count", MP_OPTION_INT, LEAF(count), "cells", "7", 1, 9, NULL, "of the leaf"},
    {0},
};
static const struct mp_option named_rows[] = {
    {"", MP_OPTION_KEY, .offset = LEAF(name)},
    {"", MP_OPTION_LINE, .offset = LEAF(line)},
    {"", MP_OPTION_INT, LEAF(count), "cells", NULL, 1, 9, NULL, "of the leaf"},
    {0},
};
static const struct mp_option number_rows[] = {
    {"", MP_OPTION_INT, .unit = "", .minimum = 0, .maximum = 9}, {0}};
static const struct mp_option inner_rows[] = {
    {"flag", MP_OPTION_BOOL, offsetof(struct inner, flag), "", "yes", 0, 0, NULL, "of it"},
    {"joined", MP_OPTION_TEXT, offsetof(struct inner, joined), "", "", 0, 0, "+", "of it"},
    {0},
};
static const struct mp_option_form leaf = {"a leaf", leaf_rows, sizeof(struct leaf), NULL};
static const struct mp_option_form named = {"a count", named_rows, sizeof(struct leaf), NULL};
static const struct mp_option_form number = {"a digit", number_rows, sizeof(int), NULL};
static const struct mp_option_form inner = {"what is inside", inner_rows, sizeof(struct inner),
                                            NULL};
static const struct mp_option_form form = {.what = "a list", .read = read_form};
static const struct mp_option_form thing = {.what = "a thing"};
static const struct mp_option rows[] = {
    {"text", MP_OPTION_STRING, BRANCH(text), "", NULL, 0, 0, NULL, "of the branch"},
    {"other", MP_OPTION_STRING, BRANCH(other), "", "", 0, 5, NULL, "of the branch"},
    {"rate", MP_OPTION_DOUBLE, BRANCH(rate), "", "0.5", 0, 1, NULL, "of it"},
    {"missing", MP_OPTION_DOUBLE, BRANCH(missing), "", "", 0, 1, NULL, "of it"},
    {"colour", MP_OPTION_CHOICE, BRANCH(colour), "", "", 0, 0, "red green", "of it"},
    {"word", MP_OPTION_WORD, BRANCH(word), "", "stated", 0, 0, words, "of it"},
    {"leaves", MP_OPTION_LIST, BRANCH(leaf), "", "", 1, 3, &leaf, "on it"},
    {"numbers", MP_OPTION_LIST, BRANCH(number), "", "", 2, 4, &number, "on it"},
    {"named", MP_OPTION_NAMED, BRANCH(named), "", "", 0, 2, &named, "on it"},
    {"node", MP_OPTION_NODE, BRANCH(node), "", "", 1, 2, &thing, "for others"},
    {"inner", MP_OPTION_MAPPING, BRANCH(inner), "", "", 1, 2, &inner, "of it"},
    {"form", MP_OPTION_FORM, BRANCH(form), "", "", 0, 0, &form, "of it"},
    {0},
};
static const struct mp_option open_rows[] = {{"", MP_OPTION_ITSELF, .offset = BRANCH(itself)}, {0}};

static int parse(const char *text, const struct mp_option table[], struct branch *branch,
                 struct mp_yaml **document, struct mp_error *error) {
    const struct mp_reading reading = {"b.yaml", error};
    *branch = (struct branch){.text = "before"};
    assert_int_equal(mp_yaml_parse("b.yaml", text, strlen(text), document, error), MP_OK);
    return mp_options_read(&reading, table, "a branch", *document, branch);
}

TEST(everything_arrives) {
    static const char text[] = "text: bark\n"
                               "colour: green\n"
                               "word: from memory\n"
                               "leaves:\n"
                               "  - {name: a, count: 9}\n"
                               "  - name: b\n"
                               "numbers: [3, 1]\n"
                               "named:\n"
                               "  x: 2\n"
                               "  y: 5\n"
                               "node: [{a: b}]\n"
                               "inner: {joined: [p, q]}\n"
                               "form: [1, 2, 3]\n";
    struct branch branch;
    struct mp_yaml *document;
    struct mp_error error = {0};
    mp_options_check(rows, sizeof branch, "a branch", &error);
    parse(text, rows, &branch, &document, &error);
    assert_string_equal(error.text, "");
    assert_string_equal(branch.text, "bark");
    assert_null(branch.other);
    assert_true(branch.rate == 0.5 && isnan(branch.missing));
    assert_true(branch.colour == 1 && branch.word == 0);
    assert_int_equal(branch.leaves, 2);
    assert_string_equal(branch.leaf[1].name, "b");
    assert_true(branch.leaf[0].count == 9 && branch.leaf[1].count == 7);
    assert_true(branch.leaf[0].line == 5 && branch.leaf[1].line == 6);
    assert_true(branch.numbers == 2 && branch.number[0] == 3 && branch.number[1] == 1);
    assert_int_equal(branch.names, 2);
    assert_string_equal(branch.named[1].name, "y");
    assert_true(branch.named[1].count == 5 && branch.named[1].line == 10);
    assert_ptr_equal(branch.node, mp_yaml_get(document, "node"));
    assert_true(branch.inner.flag && !strcmp(branch.inner.joined, "p+q") && branch.form == 3);
    mp_yaml_destroy(document);

    assert_int_equal(parse("{text: a, anything: [else]}", open_rows, &branch, &document, &error),
                     MP_OK); /* keys that no row knows are for others */
    assert_ptr_equal(branch.itself, document);
    mp_yaml_destroy(document);
    assert_int_equal(parse("text: a", rows, &branch, &document, &error), MP_OK);
    assert_true(branch.colour == -1 && branch.word == 1 && branch.leaves == 0);
    for (const struct mp_option *row = rows; row->name; row++) { /* nothing is written as nothing */
        char value[MP_TEXT_SIZE] = "before";
        if (row->type == MP_OPTION_DOUBLE || row->type == MP_OPTION_CHOICE)
            assert_string_equal(mp_options_format(row, &branch, value, sizeof value),
                                strcmp(row->name, "rate") ? "" : "0.5");
    }
    mp_yaml_destroy(document);
}

static const struct {
    const char *text, *sentence;
} wrong[] = {
    {"colour: red", "b.yaml:1: text: not given; a branch needs some text: of the branch"},
    {"text: ''", "b.yaml:1: text: should be some text"},
    {"text: [a]", "b.yaml:1: text: should be one value: some text"},
    {"[a]", "b.yaml:1: a branch should be a mapping of options, key: value"},
    {"text: a\nother: longer", "b.yaml:2: other: should be a text of at most 5 bytes"},
    {"text: a\nleavs: []",
     "b.yaml:2: unknown option \"leavs\" for a branch; did you mean \"leaves\"?"},
    {"text: a\ncolour: gren", "b.yaml:2: colour: \"gren\" is not one of red, green"},
    {"text: a\nword: statd", "b.yaml:2: word: \"statd\" is not one of from memory, stated"},
    {"text: a\nleaves: []", "b.yaml:2: leaves: should be a list of 1 to 3, each a leaf"},
    {"text: a\nleaves: {}", "b.yaml:2: leaves: should be a list of 1 to 3, each a leaf"},
    {"text: a\nleaves:\n- name: b\n- name: c\n  count: 0",
     "b.yaml:5: count: 0 is outside 1 .. 9 cells"},
    {"text: a\nleaves:\n- name: b\n- count: 1",
     "b.yaml:4: name: not given; a leaf needs some text: of the leaf"},
    {"text: a\nleaves:\n- 3", "b.yaml:3: a leaf should be a mapping of options, key: value"},
    {"text: a\nleaves:\n- {name: b, size: 3}",
     "b.yaml:3: unknown option \"size\" for a leaf; there is name, count"},
    {"text: a\nnumbers: [1, 2, 3, 4, 5]",
     "b.yaml:2: numbers: should be a list of 2 to 4, each a digit"},
    {"text: a\nnumbers:\n- 1\n- 10", "b.yaml:4: numbers: 10 is outside 0 .. 9"},
    {"text: a\nnamed: [1]",
     "b.yaml:2: named: should be a mapping of names to 0 to 2, each a count"},
    {"text: a\nnamed:\n  x: 1\n  y: 0", "b.yaml:4: named: 0 is outside 1 .. 9 cells"},
    {"text: a\nnode: b", "b.yaml:2: node: should be a list of 1 to 2, each a thing"},
    {"text: a\ninner: {}", "b.yaml:2: inner: should be a mapping: flag, joined"},
    {"text: a\ninner:\n  flag: perhaps", "b.yaml:3: flag: \"perhaps\" is not yes or no"},
    {"text: a\ninner: {joined: {a: b}}",
     "b.yaml:2: joined: should be one value or a list of values"},
    {"text: a\nform: 3", "b.yaml:2: form: a form needs a list"},
};

TEST_ROWS(slips_are_named, wrong, row) {
    struct branch branch;
    struct mp_yaml *document;
    assert_sentence(parse(row->text, rows, &branch, &document, &error), MP_EINVAL, row->sentence);
    mp_yaml_destroy(document);
}

/* Groups: two tables at the top, one under a key, as a job and its system have them. */
struct values {
    int count;
    bool flag;
    char text[MP_TEXT_SIZE];
};
#define VALUES(member) offsetof(struct values, member)
static const struct mp_option top[] = {
    {"count", MP_OPTION_INT, VALUES(count), "", "1", 0, 9, NULL, "of it"}, {0}};
static const struct mp_option second[] = {
    {"flag", MP_OPTION_BOOL, VALUES(flag), "", "no", 0, 0, NULL, "of it"}, {0}};
static const struct mp_option under[] = {
    {"text", MP_OPTION_TEXT, VALUES(text), "", "", 0, 0, NULL, "of it"}, {0}};

TEST(groups_are_read_set_and_written) {
    struct values values = {.count = 4}, again = {0};
    const struct mp_option_group group[] = {{"", top, &values, "it"},
                                            {"", second, &values, "it"},
                                            {"deep", under, &values, "what is deep"},
                                            {"none", NULL, NULL, "nothing"},
                                            {0}};
    const struct mp_option_group other[] = {{"", top, &again, "it"},
                                            {"", second, &again, "it"},
                                            {"deep", under, &again, "what is deep"},
                                            {0}};
    struct mp_error error = {0};
    const struct mp_reading reading = {"g.yaml", &error};
    char text[512] = "";
    struct mp_yaml *document;
    assert_int_equal(mp_groups_set(group, "flag=yes", &error), MP_OK);
    assert_int_equal(mp_groups_set(group, "deep.text=a=b \"c\"", &error), MP_OK);
    FILE *stream = fmemopen(text, sizeof text, "w");
    assert_int_equal(mp_groups_write(group, stream, &error), MP_OK);
    fclose(stream);
    assert_int_equal(mp_yaml_parse("g.yaml", text, strlen(text), &document, &error), MP_OK);
    assert_int_equal(mp_groups_apply(&reading, other, document), MP_OK);
    mp_yaml_destroy(document);
    assert_true(again.count == 4 && again.flag && !strcmp(again.text, "a=b \"c\""));

    static const char *const refused[][2] = {
        {"flag", "--set flag: should be key=value"},
        {"falg=1", "--set: unknown option \"falg\" for it; did you mean \"flag\"?"},
        {"deap=1", "--set: unknown option \"deap\" for it; did you mean \"deep\"?"},
        {"deep.txt=1", "--set: unknown option \"txt\" for what is deep; did you mean \"text\"?"},
        {"text=1", "--set: unknown option \"text\" for it; did you mean \"deep.text\"?"},
        {"deep.flag=1",
         "--set: unknown option \"flag\" for what is deep; did you mean \"flag\" of it?"},
        {"none.txt=1", "--set: unknown option \"txt\" for nothing, which has no options"},
        {"count=10", "--set: count: 10 is outside 0 .. 9"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        error = (struct mp_error){0};
        assert_int_equal(mp_groups_set(group, refused[i][0], &error), MP_EINVAL);
        assert_string_equal(error.text, refused[i][1]);
    }
}
