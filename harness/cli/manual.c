/* Pages of Markdown as text: what moeperf's own pages use of it. */

#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/suite/paths.h"
#include "results/report/table.h"

enum { TEXT_SIZE = 1 << 14 };

/* What lines have been gathered to. */
struct page {
    char text[TEXT_SIZE]; /* a paragraph, a point of a list or a cell, in one line */
    int indent;
    bool in_code, after_blank;
    bool heading_row; /* of a table: the next row is one */
};

/* "**words**" and "[words](where)" become "words". */
static void append_plain(struct page *page, const char *from, size_t length) {
    size_t at = strlen(page->text);
    const char *end = from + length;
    while (from < end && at + 2 < sizeof page->text) {
        if (*from == '*' && from[1] == '*') {
            from += 2;
            continue;
        }
        const char *close = *from == '[' ? memchr(from, ']', (size_t)(end - from)) : NULL;
        const char *after = close && close + 1 < end && close[1] == '('
                                ? memchr(close, ')', (size_t)(end - close))
                                : NULL;
        if (!after) {
            page->text[at++] = *from++;
            continue;
        }
        for (from++; from < close && at + 2 < sizeof page->text; from++)
            page->text[at++] = *from;
        from = after + 1;
    }
    page->text[at++] = ' ';
    page->text[at] = '\0';
}

static void flush(struct page *page) {
    if (page->text[0])
        table_filled(stdout, 0, page->indent, page->text);
    page->text[0] = '\0';
    page->indent = 0;
}

/* The first cell of a row, and the others further in.  A stroke within `quotes` parts nothing. */
static void print_row(struct page *page, const char *line) {
    int indent = 2;
    for (const char *cell = line + 1; *cell;) {
        size_t length = 0;
        for (bool quoted = false; cell[length] && (quoted || cell[length] != '|'); length++)
            quoted ^= cell[length] == '`';
        append_plain(page, cell + strspn(cell, " "), length - strspn(cell, " "));
        page->indent = indent;
        flush(page);
        indent = 6;
        cell += length;
        cell += *cell == '|';
    }
}

static void read_table(struct page *page, const char *line) {
    bool is_rule = !strncmp(line, "| ---", 5);
    if (!page->heading_row && !is_rule)
        print_row(page, line);
    page->heading_row = false;
}

static void read_line(struct page *page, const char *line) {
    bool indented = !strncmp(line, "    ", 4), blank = !line[strspn(line, " ")];
    if (!strncmp(line, "```", 3) || !strncmp(line, "![", 2)) { /* pictures stay away */
        flush(page);
        return;
    }
    page->in_code = indented && (page->in_code || page->after_blank) && page->indent == 0;
    if (blank || page->in_code || *line == '|' || *line == '#')
        flush(page);
    if (*line != '|')
        page->heading_row = true;
    if (blank) {
        putchar('\n');
    } else if (page->in_code) {
        cli_print_clean(stdout, line, strlen(line));
        putchar('\n');
    } else if (*line == '|') {
        read_table(page, line);
    } else if (*line == '#') {
        puts(line + strspn(line, "# "));
    } else {
        const char *words = line + strspn(line, " ");
        if (!strncmp(words, "- ", 2)) {
            flush(page);
            page->indent = 2;
        }
        append_plain(page, words, strlen(words));
    }
    page->after_blank = blank;
}

static int open_page(const char *topic, FILE **file, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    MP_TRY(mp_path_file(MP_MANUAL, topic, path, error));
    *file = fopen(path, "r");
    return *file ? MP_OK : mp_fail_errno(error, "%.500s", path);
}

int cli_manual_print(const char *topic, struct mp_error *error) {
    MP_AUTO(file) FILE *file = NULL;
    MP_AUTO(memory) struct page *page = NULL;
    MP_AUTO(text) char *line = NULL;
    size_t size = 0;
    MP_TRY(open_page(topic, &file, error));
    MP_TRY(MP_NEW(page, 1, error));
    for (ssize_t length; (length = getline(&line, &size, file)) > 0;) {
        line[length - (line[length - 1] == '\n')] = '\0';
        read_line(page, line);
    }
    flush(page);
    return MP_OK;
}

int cli_manual_list(struct mp_error *error) {
    MP_AUTO(names) char **topics = NULL;
    MP_TRY(mp_path_names(MP_MANUAL, &topics, error));
    puts("\npages of the manual, moeperf help PAGE:");
    for (char **topic = topics; *topic; topic++) {
        char title[128] = "";
        MP_AUTO(file) FILE *file = NULL;
        MP_TRY(open_page(*topic, &file, error));
        if (fgets(title, sizeof title, file)) {
            title[strcspn(title, "\n")] = '\0';
            printf("  %-12s %s\n", *topic, title + strspn(title, "# "));
        }
    }
    return MP_OK;
}
