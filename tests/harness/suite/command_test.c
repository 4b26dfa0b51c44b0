/* Commands: templates become words, words become a line for a shell. */
#include "harness/suite/command.h"

#include "tests/errors.h"

TEST_END(command, struct mp_command, mp_command_destroy(it))

static const char *const arguments[] = {"job file.yaml", "--progress", NULL};

struct command_case {
    const char *name, *template;
    int ranks;
    const char *text; /* as a shell line */
};

static const struct command_case cases[] = {
    {"one rank is a plain program", NULL, 1, "/bin/train 'job file.yaml' --progress"},
    {"several ranks go through mpirun", NULL, 4,
     "mpirun --oversubscribe --bind-to none -n 4 /bin/train 'job file.yaml' --progress"},
    {"a given launcher also starts one rank", "srun -n{ranks} {program} {arguments}", 1,
     "srun -n1 /bin/train 'job file.yaml' --progress"},
    {"blanks of all kinds", "  a\t{program}\n {arguments} {ranks}{ranks} ", 12,
     "a /bin/train 'job file.yaml' --progress 1212"},
    {"words that a shell would change", "it's $HOME {program} {arguments}", 2,
     "'it'\\''s' '$HOME' /bin/train 'job file.yaml' --progress"},
    {"an open brace is a letter", "{ {program} {arguments}", 2,
     "'{' /bin/train 'job file.yaml' --progress"},
};

TEST_EACH(becomes, cases, c) {
    AUTO(command) struct mp_command command;
    assert_works(
        mp_command_create(c->template, c->ranks, "/bin/train", arguments, &command, &error));
    AUTO(text) char *text = mp_command_text(&command);
    assert_string_equal(text, c->text);
    assert_int_equal(command.has_launcher, strncmp(c->text, "/bin/train", 10) != 0);
    assert_null(command.word[command.count]);
}

static const struct {
    const char *template, *message;
} wrong[] = {
    {"mpirun -n {ranks}", "launcher: \"mpirun -n {ranks}\" should contain {program} and "
                          "{arguments}"},
    {"", "launcher: \"\" should contain {program} and {arguments}"},
    {"srun -n {rank} {program} {arguments}",
     "launcher: {rank} is not one of {ranks}, {program} and, as a word of its own, {arguments}"},
    {"sh -c {program}:{arguments}", "launcher: {arguments} is not one of {ranks}, {program} and, "
                                    "as a word of its own, {arguments}"},
};

TEST_ROWS(wrong_templates_are_refused, wrong, row) {
    struct mp_command command;
    assert_sentence(mp_command_create(row->template, 2, "/bin/train", arguments, &command, &error),
                    MP_EINVAL, row->message);
}

/* A shell splits the line into the words that went in. */
TEST_RANDOM(a_shell_reads_the_same_words) {
    static const char letters[] = "a'\"\\ $`*?~#!&|;<>(){}[]%\n\t";
    char word[3][24], line[512], output[256] = "", expected[256] = "";
    const char *words[4] = {word[0], word[1], word[2], NULL};
    for (int i = 0; i < 3; i++) {
        int length = test_random_int(random, 0, 20);
        for (int j = 0; j < length; j++)
            word[i][j] = letters[test_random_int(random, 0, (int)sizeof letters - 2)];
        word[i][length] = '\0';
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "<%s>", word[i]);
    }
    AUTO(command) struct mp_command command;
    assert_works(mp_command_create(NULL, 1, "printf", words, &command, &error));
    AUTO(text) char *text = mp_command_text(&command);
    snprintf(line, sizeof line, "printf '<%%s>' %s", text + strlen("printf "));
    FILE *shell = popen(line, "r");
    size_t length = fread(output, 1, sizeof output - 1, shell);
    output[length] = '\0';
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(output, expected);
}
