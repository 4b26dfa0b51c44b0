/* Text tables: as wide as the terminal they are printed on. */
#include "results/report/table.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include "results/report/command.h"
#include "tests/errors.h"
#include "tests/results/ends.h"

/* A terminal of so many columns; its other end is *read_end.  NULL: there is none to be had. */
static FILE *open_terminal(int columns, int *read_end) {
    const struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 24};
    *read_end = posix_openpt(O_RDWR | O_NOCTTY);
    if (*read_end < 0 || grantpt(*read_end) || unlockpt(*read_end))
        return NULL;
    int own = open(ptsname(*read_end), O_RDWR | O_NOCTTY);
    if (own < 0 || ioctl(own, TIOCSWINSZ, &size))
        return NULL;
    return fdopen(own, "w");
}

static void close_terminal(FILE *terminal, int read_end) {
    fclose(terminal);
    close(read_end);
}

/* What a temporary file, which is closed, holds. */
static const char *closed(FILE *file) {
    static char text[4096];
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

TEST(width_is_the_terminals) {
    static const struct {
        const char *set; /* COLUMNS */
        int columns, width;
    } cases[] = {{NULL, 120, 120},  {NULL, 80, 80},  {NULL, 20, 40},  {NULL, 0, 80},
                 {"100", 120, 100}, {"x", 120, 120}, {"-3", 120, 120}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int read_end;
        FILE *terminal = open_terminal(cases[i].columns, &read_end);
        if (!terminal)
            skip("no terminal can be opened here");
        if (cases[i].set)
            setenv("COLUMNS", cases[i].set, 1);
        else
            unsetenv("COLUMNS");
        assert_int_equal(table_width(terminal), cases[i].width);
        close_terminal(terminal, read_end);
    }
    setenv("COLUMNS", "120", 1);
    FILE *file = tmpfile();
    assert_int_equal(table_width(file), TABLE_WIDTH); /* what goes on to somewhere else */
    fclose(file);
    unsetenv("COLUMNS");
}

static void fill(struct table *table) {
    static const struct table_column columns[] = {{"name", .kind = TABLE_LEFT},
                                                  {"nothing", .kind = TABLE_RIGHT},
                                                  {"text", .kind = TABLE_LEFT}};
    *table = table_of(columns, 3);
    assert_works(table_add(table, NULL, &error));
    table_set(table, 0, "%s", "one two three four five six seven eight nine ten");
    table_set_number(table, 1, NAN, 2);
    table_set(table, 2, "%s", "eleven twelve thirteen fourteen fifteen");
}

/* What a row says instead of numbers, over all columns behind the first and as many lines. */
TEST(a_remark_takes_the_rest_of_the_row) {
    static const struct table_column columns[] = {
        {"name", .kind = TABLE_LEFT}, {"one", .kind = TABLE_RIGHT}, {"two", .kind = TABLE_RIGHT}};
    static const char expected[] =
        "name   one  two\n"
        "first  1.5    -\n"
        "next   refused: there is more to be said of it than a column of numbers has room\n"
        "       for, so that it goes on?below\n"
        "last   2.5    -\n";
    FILE *file = tmpfile();
    AUTO(table) struct table table = table_of(columns, 3);
    for (int r = 0; r < 3; r++) {
        assert_works(table_add(&table, NULL, &error));
        table_set(&table, 0, "%s", (const char *[]){"first", "next", "last"}[r]);
        table_set_number(&table, 1, r + 1.5 - (r == 2), 1);
        table_set_number(&table, 2, NAN, 1);
        if (r == 1)
            assert_works(table_remark(&table,
                                      "refused: there is more to be said of it than a column "
                                      "of numbers has room for, so that it goes on\nbelow",
                                      &error));
    }
    table_print(&table, file);
    assert_string_equal(closed(file), expected);
}

/* On a terminal that has so many columns; 0: into a file. */
static const char *printed_on(const struct table *table, int columns) {
    static char text[1024];
    int read_end = -1;
    FILE *terminal = columns ? open_terminal(columns, &read_end) : tmpfile();
    size_t length = 0;
    ssize_t got;
    if (columns && !terminal)
        skip("no terminal can be opened here");
    assert_non_null(terminal);
    table_print(table, terminal);
    if (!columns)
        return closed(terminal);
    fclose(terminal); /* so that reading comes to an end */
    while ((got = read(read_end, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(read_end);
    assert_true(length < sizeof text - 1);
    text[length] = '\0';
    return text;
}

static const char *printed(bool drops_empty, int columns) {
    AUTO(table) struct table table;
    fill(&table);
    table.drops_empty = drops_empty;
    return printed_on(&table, columns);
}

/* Terminals end lines with a carriage return, too. */
/* What rounds to nothing has no sign; what is no number is a line. */
TEST(a_zero_has_no_sign) {
    static const double values[] = {-0.004, -0.006, -10.0, -0.0, NAN};
    struct table_column columns[5];
    FILE *file = tmpfile();
    for (int i = 0; i < 5; i++)
        columns[i] = (struct table_column){"n", .kind = TABLE_RIGHT};
    AUTO(table) struct table table = table_of(columns, 5);
    assert_works(table_add(&table, NULL, &error));
    for (int i = 0; i < 5; i++)
        table_set_number(&table, i, values[i], 2);
    table_print(&table, file);
    assert_contains(closed(file), "\n0.00  -0.01  -10.00  0.00  -\n");
}

TEST(cells_break_only_where_room_is_short) {
    assert_string_equal(
        printed(false, 0),
        "name                                nothing  text\n"
        "one two three four five six seven         -  eleven twelve thirteen fourteen\n"
        "eight nine ten                               fifteen\n");
    assert_string_equal(printed(false, 120),
                        "name                                              nothing  text\r\n"
                        "one two three four five six seven eight nine ten        -  eleven twelve "
                        "thirteen fourteen fifteen\r\n");
    assert_string_equal(
        printed(true, 120),
        "name                                              text\r\n"
        "one two three four five six seven eight nine ten  eleven twelve thirteen fourteen "
        "fifteen\r\n");
}

/* Prints a row whose numbers, from 1 on, have these headers. */
static void assert_goes_on(const char *const headers[], int numbers, const char *expected) {
    struct table_column columns[8] = {{"name", .kind = TABLE_LEFT}};
    FILE *file = tmpfile();
    for (int c = 1; c <= numbers; c++)
        columns[c] = (struct table_column){headers[c - 1], .kind = TABLE_RIGHT};
    AUTO(table) struct table table = table_of(columns, numbers + 1);
    assert_works(table_add(&table, NULL, &error));
    table_set(&table, 0, "what it is of");
    for (int c = 1; c <= numbers; c++)
        table_set_number(&table, c, c, 0);
    table_print(&table, file);
    assert_string_equal(closed(file), expected);
}

/* Three fill a line of 80, the next two would be 81; of 66 the name gives way by one, and what is
 * wider than there is room stands alone. */
TEST(columns_go_on_below) {
    assert_goes_on(
        (const char *const[]){"first", "second of thirty six characters",
                              "third column, twenty-five", "fourth",
                              "the fifth, of fifty-eight characters, has no room beside t"},
        5,
        "name           first  second of thirty six characters  third column, twenty-five\n"
        "what it is of      1                                2                          3\n"
        "\n"
        "name           fourth\n"
        "what it is of       4\n"
        "\n"
        "name           the fifth, of fifty-eight characters, has no room beside t\n"
        "what it is of                                                           5\n");
    assert_goes_on(
        (const char *const[]){"of sixty-six characters, so that the name has to give way by three"},
        1,
        "name          of sixty-six characters, so that the name has to give way by three\n"
        "what it is                                                                     1\n"
        "of\n");
    assert_goes_on(
        (const char *const[]){
            "one",
            "of seventy-eight characters, which leaves no name room to be, and is there as "},
        2,
        "name  one\n"
        "what    1\n"
        "it\n"
        "is\n"
        "of\n"
        "\n"
        "name  of seventy-eight characters, which leaves no name room to be, and is there as \n"
        "what                                                                               2\n"
        "it\n"
        "is\n"
        "of\n");
}

/* On a narrow terminal no word is broken that has room beside the first column, which has half of
 * it; what a row says instead of its cells is there once. */
TEST(words_have_room_below) {
    static const struct table_column columns[] = {{"name", .kind = TABLE_LEFT},
                                                  {"waits,ms", .kind = TABLE_RIGHT},
                                                  {"why", .kind = TABLE_LEFT},
                                                  {"where", .kind = TABLE_LEFT}};
    AUTO(table) struct table table = table_of(columns, 4);
    for (int r = 0; r < 2; r++) {
        assert_works(table_add(&table, NULL, &error));
        table_set(&table, 0, r ? "refused" : "a name that has more than half of it");
        table_set_number(&table, 1, 1.5, 2);
        table_set(&table, 2, "communication");
        table_set(&table, 3, "between layer 12's experts");
    }
    assert_works(table_remark(&table, "there is no such system", &error));
    assert_string_equal(printed_on(&table, 40), "name                  waits,ms\r\n"
                                                "a name that has more      1.50\r\n"
                                                "than half of it\r\n"
                                                "refused               there is no such\r\n"
                                                "                      system\r\n"
                                                "\r\n"
                                                "name                  why\r\n"
                                                "a name that has more  communication\r\n"
                                                "than half of it\r\n"
                                                "\r\n"
                                                "name                  where\r\n"
                                                "a name that has more  between layer 12's\r\n"
                                                "than half of it       experts\r\n");
}

/* A line of 80 is full, one of 81 broken; a word that is too long stands alone. */
TEST(words_go_on_below) {
    static const char text[] = "%s y\n\n  %s zz\nlast";
    static const char expected[] = "name      %s y\n"
                                   "          %s\n"
                                   "          zz\n"
                                   "          last\n"
                                   "nothing\n";
    char words[256], wanted[256], full[69], over[69];
    FILE *file = tmpfile();
    memset(full, 'x', sizeof full);
    memset(over, 'x', sizeof over);
    full[68] = over[68] = '\0';
    snprintf(words, sizeof words, text, full, over);
    snprintf(wanted, sizeof wanted, expected, full, over);
    fprintf(file, "name      ");
    table_filled(file, 10, 10, words);
    table_filled(file, 0, 0, "");
    table_filled(file, 0, 0, "nothing");
    assert_string_equal(closed(file), wanted);
}

TEST_RANDOM(filled_words_fit_the_page) {
    char text[2000], read[4000] = "", line[256];
    size_t length = 0;
    while (length < sizeof text - 40) { /* words of 1 .. 30 letters */
        int letters = test_random_int(random, 1, 30);
        memset(text + length, 'a' + test_random_int(random, 0, 25), (size_t)letters);
        length += (size_t)letters;
        text[length++] = ' ';
    }
    text[length - 1] = '\0';
    int indent = test_random_int(random, 0, 8);
    FILE *file = tmpfile();
    table_filled(file, 0, indent, text);
    rewind(file);
    for (int lines = 0; fgets(line, sizeof line, file); lines++) {
        size_t columns = strcspn(line, "\n");
        line[columns] = '\0';
        assert_in_range(columns, 1, 80);
        assert_int_equal(strspn(line, " "), indent);
        if (lines > 0)
            strcat(read, " ");
        strcat(read, line + indent);
    }
    assert_string_equal(read, text); /* nothing lost, nothing added */
    fclose(file);
}

TEST(commands_are_quoted_for_shells) {
    static const struct {
        const char *database, *command;
    } cases[] = {
        {"out/results.db", "moeperf report --run 7 --db out/results.db"},
        {"a b.db", "moeperf report --run 7 --db 'a b.db'"},
        {"it's.db", "moeperf report --run 7 --db 'it'\\''s.db'"},
        {"$HOME;`x`.db", "moeperf report --run 7 --db '$HOME;`x`.db'"},
        {"~/x.db", "moeperf report --run 7 --db '~/x.db'"},
        {"-x.db", "moeperf report --run 7 --db=-x.db"},
        {"", "moeperf report --run 7 --db ''"},
        {"two\nlines.db", ""},
        {"back\xe2\x80\xaewards.db", ""},
    };
    char text[COMMAND_TEXT], huge[5000], word[COMMAND_WORD];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(command_text(text, cases[i].database, "report --run %d", 7),
                            cases[i].command);
    for (size_t length = 4000; length < sizeof huge; length += 13) {
        memset(huge, '\'', length);
        huge[length] = '\0';
        assert_string_equal(command_text(text, huge, "report"), "");
        assert_string_equal(command_word(word, huge), "''");
    }
    assert_string_equal(command_word(word, "x y"), "'x y'");
}
