#include "reference/plan/arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/option.h"

enum { FLAGS_LIMIT = 32, HELP_COLUMN = 24, PAGE_COLUMNS = 80 };

/* Fills lines of the page from a column on; the first one's beginning is there already.  A line
 * that begins with a blank stays one of its own, as of a table: what is too long of it goes on
 * under its second column. */
static void print_filled(const char *text, int begin) {
    int column = begin, under = begin;
    bool is_own = false;
    while (*text) {
        int gap = (int)strspn(text, " ");
        text += gap;
        if (*text == '\n') {
            const bool is_sentence = column > begin && text[-1] == '.';
            text++;
            if (is_own || column == 0 || *text == ' ' || *text == '\n') {
                is_own = *text == ' ';
                under = begin;
                column = printf("\n%*s", (int)strspn(text, " "), "") - 1;
                text += strspn(text, " ");
                continue;
            }
            gap = is_sentence ? 2 : 1;
        }
        int length = (int)strcspn(text, " \n");
        if (column > under && column + gap + length > PAGE_COLUMNS) {
            printf("\n%*s", under, "");
            column = under;
        } else {
            column += printf("%*s", gap, "");
        }
        if (is_own && gap > 1 && under == begin)
            under = column;
        column += printf("%.*s", length, text);
        text += length;
    }
    putchar('\n');
}

static void print_flag(const struct cli_flag *flag) {
    char name[64];
    int length = snprintf(name, sizeof name, "%s%s%s", flag->name, flag->value ? " " : "",
                          flag->value ? flag->value : "");
    bool fits = length <= HELP_COLUMN - 4;
    if (fits)
        printf("  %-*s", HELP_COLUMN - 2, name);
    else
        printf("  %s\n%*s", name, HELP_COLUMN, "");
    print_filled(flag->help, HELP_COLUMN);
}

static void print_usage(const struct cli_usage *usage) {
    printf("usage: %s\n\n", usage->synopsis);
    print_filled(usage->about, 0);
    printf("\noptions:\n");
    for (const struct cli_flag *flag = usage->flags; flag->name; flag++)
        print_flag(flag);
    print_flag(&(struct cli_flag){"--help", CLI_SWITCH, NULL, NULL, "this text"});
    printf("\nexamples:\n%s", usage->examples);
}

/* `value` follows the word, or is NULL. */
static int fail_unknown(const struct cli_usage *usage, cli_find_setting *find, const char *word,
                        const char *value, struct mp_error *error) {
    const char *known[FLAGS_LIMIT + 2];
    bool takes_settings = false;
    int count = 0;
    for (; usage->flags[count].name && count < FLAGS_LIMIT; count++) {
        known[count] = usage->flags[count].name;
        takes_settings |= find && !strcmp(known[count], "--set");
    }
    known[count++] = "--help";
    known[count] = NULL;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *nearest = mp_nearest_word(name, known);
    const char *setting = takes_settings ? find(name, true) : NULL;
    if (takes_settings && !setting && !nearest)
        setting = find(name, false);
    if (setting)
        return mp_fail(error, MP_EINVAL, "unknown option %s; did you mean --set %s=%.80s?", name,
                       setting, value && *value != '-' ? value : "VALUE");
    if (nearest)
        return mp_fail(error, MP_EINVAL, "unknown option %s; did you mean %s?", name, nearest);
    return mp_fail(error, MP_EINVAL, "unknown option %s; --help lists them", name);
}

/* The flag that `word` names, alone or in "--flag=value"; NULL if none. */
static const struct cli_flag *find_flag(const struct cli_usage *usage, const char *word) {
    size_t length = strcspn(word, "=");
    for (const struct cli_flag *flag = usage->flags; flag->name; flag++)
        if (strlen(flag->name) == length && !strncmp(flag->name, word, length))
            return flag;
    return NULL;
}

static int take_number(const struct cli_flag *flag, const char *value, struct mp_error *error) {
    const struct cli_number *number = flag->target;
    int64_t whole;
    if (!mp_whole_number(value, number->least, number->most, &whole))
        return mp_fail(error, MP_EINVAL,
                       "%s %.100s: should be a whole number from %" PRId64 " to %" PRId64,
                       flag->name, value, number->least, number->most);
    if (flag->kind == CLI_COUNT)
        *(int *)number->target = (int)whole;
    else
        *(int64_t *)number->target = whole;
    return MP_OK;
}

/* Takes argv[*i] as a flag, and the word after it if that is its value. */
static int take_flag(const struct cli_usage *usage, cli_find_setting *setting, int argc,
                     char *argv[], int *i, struct mp_error *error) {
    const char *word = argv[*i], *equals = strchr(word, '=');
    const struct cli_flag *flag = find_flag(usage, word);
    if (!flag)
        return fail_unknown(usage, setting, word,
                            equals          ? equals + 1
                            : *i + 1 < argc ? argv[*i + 1]
                                            : NULL,
                            error);
    if (flag->kind == CLI_SWITCH) {
        if (equals)
            return mp_fail(error, MP_EINVAL, "%s takes no value", flag->name);
        *(bool *)flag->target = true;
        return MP_OK;
    }
    const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : "";
    if (!*value)
        return mp_fail(error, MP_EINVAL, "%s needs a value: %s %s", flag->name, flag->name,
                       flag->value);
    if (flag->kind == CLI_VALUE) {
        *(const char **)flag->target = value;
        return MP_OK;
    }
    if (flag->kind != CLI_REPEATED)
        return take_number(flag, value, error);
    struct cli_words *words = flag->target;
    if (words->count == CLI_WORDS_LIMIT)
        return mp_fail(error, MP_EINVAL, "%s is given more than %d times", flag->name,
                       CLI_WORDS_LIMIT);
    words->word[words->count++] = value;
    return MP_OK;
}

static int fail_surplus(const struct cli_usage *usage, const char *word, struct mp_error *error) {
    const int first = (int)strcspn(usage->synopsis, "\n"); /* of it: an error is one line */
    const size_t length = strlen(word);
    const bool is_database = length > 3 && !strcmp(word + length - 3, ".db");
    if (is_database && usage->words_most == 0 && find_flag(usage, "--db"))
        return mp_fail(error, MP_EINVAL,
                       "\"%.200s\" is one argument too many: did you mean --db %.200s?", word,
                       word);
    return mp_fail(error, MP_EINVAL, "\"%.200s\" is one argument too many; usage: %.*s", word,
                   first, usage->synopsis);
}

int cli_parse_arguments(const struct cli_usage *usage, cli_find_setting *setting, int argc,
                        char *argv[], struct cli_words *words, struct mp_error *error) {
    const int first = (int)strcspn(usage->synopsis, "\n"); /* of it: an error is one line */
    words->count = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_usage(usage);
            return 1;
        }
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            MP_TRY(take_flag(usage, setting, argc, argv, &i, error));
            continue;
        }
        if (words->count >= usage->words_most)
            return fail_surplus(usage, argv[i], error);
        words->word[words->count++] = argv[i];
    }
    if (words->count < usage->words_least)
        return mp_fail(error, MP_EINVAL, "an argument is missing; usage: %.*s; --help tells more",
                       first, usage->synopsis);
    return 0;
}
