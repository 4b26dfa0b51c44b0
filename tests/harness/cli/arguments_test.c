/* Arguments: flags in both spellings, words, and the sentence for each mistake. */
#include "harness/cli/cli.h"
#include "tests/errors.h"

struct parsed {
    bool json;
    const char *database;
    int ranks;
    int64_t budget;
    struct cli_words set, words;
};

static int parse(struct parsed *parsed, char *argv[], struct mp_error *error) {
    const struct cli_flag flags[] = {
        {"--json", CLI_SWITCH, &parsed->json, NULL, "prints JSON"},
        {"--db", CLI_VALUE, &parsed->database, "FILE", "database"},
        {"--ranks", CLI_COUNT, CLI_NUMBER(&parsed->ranks, 1, 8), "N", "ranks"},
        {"--budget", CLI_WHOLE, CLI_NUMBER(&parsed->budget, 0, INT64_MAX), "N", "budget"},
        {"--set", CLI_REPEATED, &parsed->set, "KEY=VALUE", "an option"},
        {0},
    };
    const struct cli_usage usage = {"moeperf try WORD [options]", "About.", flags, 1, 2, "  x\n"};
    int argc = 0;
    while (argv[argc])
        argc++;
    memset(parsed, 0, sizeof *parsed);
    return cli_parse(&usage, argc, argv, &parsed->words, error);
}
#define WORDS(...) ((char *[]){(char[]){"try"}, __VA_ARGS__, NULL})
#define WORD(text) ((char[]){text})

TEST(flags_and_words_are_told_apart) {
    struct parsed parsed;
    char **words = WORDS(WORD("one"), WORD("--set"), WORD("a=1"), WORD("--db=x=y"), WORD("--json"),
                         WORD("--set=b=2"), WORD("-"), WORD("--ranks"), WORD("8"),
                         WORD("--budget=9223372036854775807"));
    assert_works(parse(&parsed, words, &error));
    assert_true(parsed.json);
    assert_string_equal(parsed.database, "x=y");
    assert_int_equal(parsed.ranks, 8);
    assert_true(parsed.budget == INT64_MAX);
    assert_int_equal(parsed.set.count, 2);
    assert_string_equal(parsed.set.word[0], "a=1");
    assert_string_equal(parsed.set.word[1], "b=2");
    assert_int_equal(parsed.words.count, 2);
    assert_string_equal(parsed.words.word[0], "one");
    assert_string_equal(parsed.words.word[1], "-");
}

static const struct {
    char word[3][16];
    const char *message;
} wrong[] = {
    {{"x", "--jsn"}, "unknown option --jsn; did you mean --json?"},
    {{"x", "--hepl"}, "unknown option --hepl; did you mean --help?"},
    {{"x", "--nothing=1"}, "unknown option --nothing; --help lists them"},
    {{"x", "-j"}, "unknown option -j; --help lists them"},
    {{"x", "--json=1"}, "--json takes no value"},
    {{"x", "--ranks=9"}, "--ranks 9: should be a whole number from 1 to 8"},
    {{"x", "--ranks", "2x"}, "--ranks 2x: should be a whole number from 1 to 8"},
    {{"x", "--budget", "-1"},
     "--budget -1: should be a whole number from 0 to 9223372036854775807"},
    {{"x", "--db"}, "--db needs a value: --db FILE"},
    {{"x", "--db="}, "--db needs a value: --db FILE"},
    {{"--json"}, "an argument is missing; usage: moeperf try WORD [options]; --help tells more"},
    {{"x", "y", "z"}, "\"z\" is one argument too many; usage: moeperf try WORD [options]"},
};

TEST_ROWS(mistakes_are_named, wrong, row) {
    struct parsed parsed;
    char word[3][16], name[] = "try", *argv[5] = {name};
    memcpy(word, row->word, sizeof word);
    for (int j = 0; j < 3; j++)
        argv[j + 1] = *word[j] ? word[j] : NULL;
    argv[4] = NULL;
    assert_sentence(parse(&parsed, argv, &error), MP_EINVAL, row->message);
}
