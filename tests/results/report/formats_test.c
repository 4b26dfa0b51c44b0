/* Tables in all formats: a column is one row of its description, and is in each of them. */
#include "results/report/query.h"
#include "results/report/speedup.h"
#include "results/report/table.h"
#include "tests/results/csv.h"
#include "tests/results/report/texts.h"
#include "tests/results/runs.h"

struct row {
    const char *name, *remark;
    char kind[32];
    double seconds, share, loss;
    int count;
    int64_t large;
    bool flag;
};

static void show_pair(const void *row, char text[TABLE_CELL]) {
    const struct row *own = row;
    snprintf(text, TABLE_CELL, "%d|%d", own->count, own->count + 1);
}

#define ROW(member) offsetof(struct row, member)
static const struct table_column columns[] = {
    {"name", TABLE_LEFT, NULL, "name", .at = ROW(name)},
    {"kind", TABLE_ARRAY, NULL, "kind", .at = ROW(kind)},
    {"whole\ntime", TABLE_MS, "ms", "time_ms", ROW(seconds), .decimals = 2},
    {"dropped", TABLE_NUMBER, "%", "dropped_fraction", ROW(share), .decimals = 1},
    {"loss dif-\nfers", TABLE_NUMBER, "nats", "loss", ROW(loss), .decimals = TABLE_POWER},
    {"copies", TABLE_COUNT, "per it", "copies", .at = ROW(count)},
    {"bytes", TABLE_LARGE, "B", "bytes", .at = ROW(large)},
    {"own", TABLE_FLAG, NULL, "own", .at = ROW(flag)},
    {"from|to", TABLE_RIGHT, .show = show_pair},
    {NULL, TABLE_NUMBER, NULL, "seed", .at = ROW(loss)},
    {"refused", TABLE_REMARK, NULL, "refused", .at = ROW(remark)},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static char *written(const struct row rows[], int count, enum mp_report_format format,
                     const char *title) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct table table = table_of(columns, COLUMNS);
    assert_works(table_fill(&table, rows, count, sizeof *rows, &error));
    if (format == MP_REPORT_JSON)
        assert_works(print_object(table_json(&table), out, &error));
    else
        table_write(&table, format, title, out);
    fclose(out);
    table_free(&table);
    return text;
}

static const struct row plain = {"ep",   NULL,    "exchange", 0.0125, 0.25,
                                 1.5e-3, 1234567, 1LL << 40,  true};

/* Every column, with its unit, in what people read; every key, with its whole value, in what
 * programs do. */
TEST(every_column_is_in_every_format) {
    static const struct {
        enum mp_report_format format;
        const char *words[16];
    } cases[] = {
        {MP_REPORT_TEXT,
         {"name", "kind", "whole", "time ms", "dropped", "%", "loss dif-", "fers nats", "copies",
          "per it", "bytes", "B", "own", "12.50", "25.0", "1.5e-03"}},
        {MP_REPORT_MARKDOWN,
         {"| name | kind | whole time ms | dropped % | loss differs nats | copies per it | bytes B "
          "| own | from\\|to |\n"
          "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
          "| ep | exchange | 12.50 | 25.0 | 1.5e-03 | 1234567 | 1099511627776 | yes | "
          "1234567\\|1234568 |\n"}},
        {MP_REPORT_LATEX,
         {"\\begin{tabular}{llrrrrrrr}\n\\toprule\n  name & kind & whole time ms & dropped \\% & "
          "loss differs nats & copies per it & bytes B & own & from\\textbar{}to \\\\\n\\midrule\n"
          "  ep & exchange & 12.50 & 25.0 & 1.5e-03 & 1234567 & 1099511627776 & yes & "
          "1234567\\textbar{}1234568 \\\\\n\\bottomrule\n"}},
        {MP_REPORT_CSV,
         {"table,name,kind,time_ms,dropped_fraction,loss,copies,bytes,own,seed,refused\n"
          "here,ep,exchange,12.5,0.25,0.0015,1234567,1099511627776,1,0.0015,\n"}},
        {MP_REPORT_JSON,
         {"\"name\": \"ep\"", "\"kind\": \"exchange\"", "\"time_ms\": 12.5",
          "\"dropped_fraction\": 0.25", "\"loss\": 0.0015", "\"copies\": 1234567",
          "\"bytes\": 1099511627776", "\"own\": true", "\"seed\": 0.0015", "\"refused\": null"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(text) char *text = written(&plain, 1, cases[i].format, "here");
        for (int w = 0; w < 16 && cases[i].words[w]; w++)
            assert_says(text, cases[i].words[w]);
    }
}

TEST(numbers_have_their_digits) {
    static const struct {
        struct table_column column;
        double value;
        const char *text;
    } cases[] = {
        {{"", .kind = TABLE_NUMBER, .decimals = TABLE_DIGITS}, 99.25, "99.25"},
        {{"", .kind = TABLE_NUMBER, .decimals = TABLE_DIGITS}, -250.25, "-250.2"},
        {{"", .kind = TABLE_NUMBER, .decimals = TABLE_DIGITS}, 2500.4, "2500"},
        {{"", .kind = TABLE_NUMBER, .decimals = TABLE_FEWER + 3}, 250.25, "250.25"},
        {{"", TABLE_NUMBER, "%", .decimals = TABLE_SIGNED + 1}, 0.0375, "+3.8"},
        {{"", TABLE_NUMBER, "%", .decimals = TABLE_SIGNED + 1}, -0.25, "-25.0"},
        {{"", .kind = TABLE_NUMBER, .decimals = TABLE_EXACT}, 1234567.125, "1234567.125"},
        {{"", .kind = TABLE_NUMBER, .decimals = 1}, INFINITY, "-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(table) struct table table = table_of(&cases[i].column, 1);
        assert_works(table_add(&table, NULL, &error));
        table_number(&table, 0, cases[i].value);
        assert_string_equal(table.cell->text, cases[i].text);
    }
}

/* The same with the tables that there are: what is added to them has a name in every format. */
TEST(columns_of_reports_are_named) {
    char label[] = "ep";
    struct speedup_row row = {.run = {.label = label}, .complete = 2, .rounds = 2, .serves = true};
    AUTO(table) struct table table;
    memset(&row.ms, 1, sizeof row - offsetof(struct speedup_row, ms)); /* all have something */
    assert_works(speedup_table(&row, 1, &table, &error));
    for (int c = 0; c < table.columns; c++) {
        const struct table_column *column = &table.column[c];
        assert_true(column->header || column->key);
        assert_true(!column->header || column->kind == TABLE_REMARK || table_shows(&table, c));
        for (int other = 0; other < c && column->key; other++)
            assert_true(!table.column[other].key || strcmp(table.column[other].key, column->key));
    }
}

static void put_random_text(uint64_t *random, char text[32]) {
    static const char *const parts[] = {"\\",  "|", "&",  "_",  "\"", ",", "=",     "@SUM(", "<b>",
                                        "\n",  "%", "$x", "#1", "~",  "^", "{",     "}",     "*",
                                        "[a]", "-", "--", "`",  " ",  "é", "\x1b[", "end",   "'"};
    *text = '\0';
    for (uint64_t part = 1 + test_random(random) % 5; part > 0; part--)
        strcat(text, parts[test_random(random) % (sizeof parts / sizeof *parts)]);
}

static double random_number(uint64_t *random) {
    double value = (double)(int64_t)test_random(random) * 0x1p-63;
    return test_random(random) % 5 == 0 ? NAN : ldexp(value, (int)(test_random(random) % 60) - 30);
}

static void assert_number(const char *field, double value) {
    if (isnan(value))
        assert_string_equal(field, "");
    else
        assert_true(strtod(field, NULL) == value);
}

TEST_RANDOM(random_rows_come_back) {
    enum { ROWS = 40 };
    struct row rows[ROWS];
    char name[ROWS][32];
    for (int r = 0; r < ROWS; r++) {
        put_random_text(random, name[r]);
        rows[r] = (struct row){name[r],
                               test_random(random) % 4 ? NULL : "it can't",
                               "",
                               random_number(random),
                               random_number(random),
                               random_number(random),
                               (int)test_random(random),
                               (int64_t)test_random(random),
                               test_random(random) % 2};
        put_random_text(random, rows[r].kind);
    }
    AUTO(text)
    char *csv = written(rows, ROWS, MP_REPORT_CSV, "a, b"),
         *json = written(rows, ROWS, MP_REPORT_JSON, "");
    AUTO(json) json_t *list = json_loads(json, 0, NULL);
    char *at = strchr(csv, '\n') + 1;
    for (int r = 0; r < ROWS; r++) {
        const json_t *object = json_array_get(list, (size_t)r);
        assert_string_equal(json_string_value(json_object_get(object, "name")), name[r]);
        assert_true(json_integer_value(json_object_get(object, "bytes")) == rows[r].large);
        assert_true(json_is_null(json_object_get(object, "refused")) == !rows[r].remark);
        struct csv_field field[COLUMNS];
        for (int c = 0; c < COLUMNS; c++)
            field[c] = csv_next(&at);
        assert_string_equal(field[0].text, "a, b");
        for (int text = 0; text < 2; text++) { /* formulas are marked */
            const char *own = text ? rows[r].kind : name[r];
            assert_string_equal(field[1 + text].text + (strchr("=+-@\t\r", *own) != NULL), own);
        }
        assert_number(field[3].text, 1e3 * rows[r].seconds);
        assert_number(field[4].text, rows[r].share);
        assert_number(field[5].text, rows[r].loss);
        assert_int_equal(strtol(field[6].text, NULL, 10), rows[r].count);
        assert_true(strtoll(field[7].text, NULL, 10) == rows[r].large);
        assert_string_equal(field[8].text, rows[r].flag ? "1" : "0");
        assert_number(field[9].text, rows[r].loss);
        assert_string_equal(field[10].text, rows[r].remark ? rows[r].remark : "");
        assert_true(field[10].ends_line);
    }
    assert_string_equal(at, "");
}

/* Cells between bars that no name has made, the same in each line. */
static int bars_of(const char *line, size_t length) {
    int bars = 0;
    for (size_t i = 0; i < length; i++) {
        bars += line[i] == '|';
        i += line[i] == '\\';
    }
    return bars;
}

TEST_RANDOM(hostile_names_stay_names) {
    char name[32];
    for (int i = 0; i < 200; i++) {
        struct row row = plain;
        row.name = name;
        put_random_text(random, name);
        row.remark = i % 3 ? NULL : name;
        AUTO(text)
        char *markdown = written(&row, 1, MP_REPORT_MARKDOWN, name),
             *latex = written(&row, 1, MP_REPORT_LATEX, name);
        int lines = 0;
        for (const char *line = strstr(markdown, "| name"); *line; lines++) {
            size_t length = strcspn(line, "\n");
            assert_int_equal(bars_of(line, length), 10);
            line += length + 1;
        }
        assert_int_equal(lines, 3);
        assert_null(strchr(strstr(markdown, "\n\n"), '<'));
        /* Every command that is there is one of the table's own or of an escape. */
        int depth = 0;
        for (const char *at = latex; *at; at++) {
            depth += (*at == '{') - (*at == '}');
            assert_true(depth >= 0);
            assert_null(strchr("#$^~\x1b", *at));
            at += *at == '\\' && at[1];
        }
        assert_int_equal(depth, 0);
    }
    struct row row = {.name = "a_b\\|<x>--''", .remark = "50 % of $1"};
    AUTO(text)
    char *markdown = written(&row, 1, MP_REPORT_MARKDOWN, ""),
         *latex = written(&row, 1, MP_REPORT_LATEX, "t#1");
    assert_says(markdown, "| a\\_b\\\\\\|&lt;x&gt;--'' | refused: 50 % of \\$1 |");
    assert_says(latex, "\\caption{t\\#1}\n");
    assert_says(latex, "  a\\_b\\textbackslash{}\\textbar{}\\textless{}x\\textgreater{}-{}-'{}' & "
                       "\\multicolumn{8}{l}{refused: 50 \\% of \\$1} \\\\\n");
}
