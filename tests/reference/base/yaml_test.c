/* YAML: what is read and where it stood, what is refused and how, values that come back. */
#include "reference/base/yaml.h"
#include "tests/errors.h"

TEST_END(yaml, struct mp_yaml *, mp_yaml_destroy(*it))

static struct mp_yaml *parse(const char *text) {
    struct mp_yaml *document = NULL;
    struct mp_error error = {0};
    int code = mp_yaml_parse("test.yaml", text, strlen(text), &document, &error);
    if (code)
        print_error("%s\n", error.text);
    assert_int_equal(code, MP_OK);
    return document;
}

TEST(places_are_kept) {
    AUTO(yaml)
    struct mp_yaml *document = parse("suite: skewed\n"
                                     "jobs:\n"
                                     "  - name: ep\n"
                                     "    ranks: 2\n"
                                     "  - [a, \"b c\"]\n");
    assert_numbers(document->kind, MP_YAML_MAPPING, document->count, 2, document->line, 1);
    assert_string_equal(document->key[1], "jobs");
    assert_int_equal(document->key_line[1], 2);
    assert_string_equal(mp_yaml_get(document, "suite")->text, "skewed");
    const struct mp_yaml *jobs = mp_yaml_get(document, "jobs");
    assert_numbers(jobs->kind, MP_YAML_SEQUENCE, jobs->count, 2, jobs->item[0]->key_line[1], 4);
    const struct mp_yaml *ranks = mp_yaml_get(jobs->item[0], "ranks");
    assert_numbers(ranks->line, 4, ranks->column, 12);
    assert_string_equal(jobs->item[1]->item[1]->text, "b c");
    assert_null(mp_yaml_get(document, "nothing"));
    assert_null(mp_yaml_get(jobs, "suite"));
    assert_null(mp_yaml_get(NULL, "suite"));
}

TEST(aliases_are_copies) {
    AUTO(yaml) struct mp_yaml *document = parse("a: &one {x: 1}\nb: *one\n");
    assert_string_equal(mp_yaml_get(mp_yaml_get(document, "b"), "x")->text, "1");
    assert_ptr_not_equal(mp_yaml_get(document, "a"), mp_yaml_get(document, "b"));
    assert_int_equal(mp_yaml_get(document, "b")->line, 1);
}

TEST(only_the_first_document_is_read) {
    AUTO(yaml) struct mp_yaml *document = parse("a: 1\n---\nb: [\n");
    assert_string_equal(mp_yaml_get(document, "a")->text, "1");
}

struct refused_case {
    const char *name, *text, *message;
};

static const struct refused_case refused_cases[] = {
    {"empty", "", "test.yaml:1:1: the file is empty"},
    {"only a comment", "# nothing\n", "test.yaml:1:1: the file is empty"},
    {"key given twice", "a: 1\nb: 2\na: 3\n",
     "test.yaml:3: the key \"a\" is given twice, first in line 1"},
    {"key given twice inside", "j:\n  - {x: 1, y: 2, x: 3}\n",
     "test.yaml:2: the key \"x\" is given twice, first in line 2"},
    {"list not closed", "a: [1, 2\nb: 3\n",
     "test.yaml:2:2: while parsing a flow sequence, did not find expected ',' or ']'"},
    {"tab as indentation", "a:\n\tb: 1\n",
     "test.yaml:2:1: while scanning for the next token, found character that cannot start any "
     "token"},
    {"unknown alias", "a: *nobody\n", "test.yaml:1:4: found undefined alias"},
    {"alias of itself", "a: &self [1, *self]\n",
     "test.yaml:1:4: an alias refers to the value that it is part of"},
    {"key that is a list", "[a, b]: 1\n", "test.yaml:1:1: a key must be one word"},
    {"zero byte", "a: \"x\\0y\"\n", "test.yaml:1:4: a zero byte in a value"},
    {"not UTF-8 behind an empty line", "\nb: \xff\n", "test.yaml:2:4: invalid leading UTF-8 octet"},
    {"not UTF-8", "a: 1\nb: \xff\n", "test.yaml:2:4: invalid leading UTF-8 octet"},
};

TEST_EACH(refused, refused_cases, c) {
    struct mp_yaml *document = NULL;
    struct mp_error error = {0};
    int code = mp_yaml_parse("test.yaml", c->text, strlen(c->text), &document, &error);
    assert_int_equal(code, MP_EFORMAT);
    assert_null(document);
    assert_string_equal(error.text, c->message);
}

/* `depth` lists inside each other; the innermost holds a word, one level more. */
static void nest(char *text, int depth) {
    memset(text, '[', (size_t)depth);
    text[depth] = 'x';
    memset(text + depth + 1, ']', (size_t)depth);
    text[2 * depth + 1] = '\0';
}

TEST(nesting_is_limited) {
    char text[256];
    struct mp_yaml *document = NULL;
    nest(text, 31);
    mp_yaml_destroy(parse(text));
    nest(text, 32);
    assert_sentence(mp_yaml_parse("n", text, strlen(text), &document, &error), MP_EFORMAT,
                    "n:1:33: values are nested deeper than 32 levels");
}

/* Nine aliases of nine aliases of ...: 9^9 values from a file of one kilobyte. */
TEST(aliases_can_not_fill_the_memory) {
    char text[2048] = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
    struct mp_yaml *document = NULL;
    for (int i = 1; i < 9; i++) {
        size_t length = strlen(text);
        length += (size_t)sprintf(text + length, "a%d: &a%d [", i, i);
        for (int j = 0; j < 9; j++)
            length += (size_t)sprintf(text + length, "*a%d,", i - 1);
        sprintf(text + length - 1, "]\n");
    }
    assert_fails(mp_yaml_parse("bomb", text, strlen(text), &document, &error), MP_EFORMAT,
                 "more than 1048576 values");
}

TEST(size_is_limited) {
    size_t size = ((size_t)16 << 20) + 1;
    char path[] = "/tmp/moeperf-yaml-XXXXXX", *text = malloc(size);
    struct mp_yaml *document = NULL;
    memset(text, '#', size);
    assert_sentence(mp_yaml_parse("big", text, size, &document, &error), MP_EFORMAT,
                    "big: larger than 16 MiB");
    int file = mkstemp(path);
    assert_int_equal(write(file, text, size), (ssize_t)size);
    close(file);
    assert_sentence(mp_yaml_load(path, &document, &error), MP_EFORMAT,
                    formatted("%s: larger than 16 MiB", path));
    unlink(path);
    free(text);
}

TEST(files_are_read_whole) {
    uint64_t seed = test_seed();
    int entries = test_random_int(&seed, 3000, 9000); /* several times the first buffer */
    char path[] = "/tmp/moeperf-yaml-XXXXXX";
    struct mp_yaml *document = NULL;
    FILE *file = fdopen(mkstemp(path), "w");
    for (int i = 0; i < entries; i++)
        fprintf(file, "key%d: value %d\n", i, 7 * i);
    fclose(file);
    assert_works(mp_yaml_load(path, &document, &error));
    assert_int_equal(document->count, entries);
    int last = entries - 1;
    char value[32];
    sprintf(value, "value %d", 7 * last);
    assert_string_equal(document->item[last]->text, value);
    assert_int_equal(document->key_line[last], entries);
    mp_yaml_destroy(document);
    unlink(path);
}

TEST(missing_files_and_folders_are_named) {
    struct mp_yaml *document = NULL;
    assert_sentence(mp_yaml_load("/nowhere/suite.yaml", &document, &error), MP_ENOTFOUND,
                    "/nowhere/suite.yaml: No such file or directory");
    assert_sentence(mp_yaml_load("/tmp", &document, &error), MP_EIO, "/tmp: Is a directory");
}

/* Characters of all UTF-8 lengths, with those that YAML or its readers treat specially. */
static size_t append_character(char *text, uint64_t *seed) {
    static const char *const special[] = {"\"",     "\\",     "\n",     "\t",         "\r",
                                          "#",      ": ",     "- ",     "\x7f",       "\xc2\x85",
                                          "\u00e9", "\u2028", "\ufeff", "\U0001f600", "\x01"};
    if (test_random_int(seed, 0, 2) == 0) {
        const char *chosen = special[test_random_int(seed, 0, 14)];
        strcpy(text, chosen);
        return strlen(chosen);
    }
    text[0] = (char)test_random_int(seed, ' ', '~');
    return 1;
}

TEST(written_text_comes_back) {
    uint64_t seed = test_seed();
    for (int trial = 0; trial < 300; trial++) {
        char text[512], *written = NULL;
        size_t length = 0, size;
        for (int i = test_random_int(&seed, 1, 80); i > 0; i--)
            length += append_character(text + length, &seed);
        text[length] = '\0';
        FILE *stream = open_memstream(&written, &size);
        assert_works(mp_yaml_write_text(stream, text, &error));
        fclose(stream);
        AUTO(yaml) struct mp_yaml *document = parse(written);
        assert_string_equal(document->text, text);
        free(written);
    }
}

TEST(bytes_that_are_no_text_are_not_written) {
    static const char *const wrong[] = {
        "\xff", "a\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82(end)"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        AUTO(allocated) char *written = NULL;
        size_t size;
        FILE *stream = open_memstream(&written, &size);
        assert_fails(mp_yaml_write_text(stream, wrong[i], &error), MP_EINVAL, "is not UTF-8");
        fclose(stream);
    }
}
