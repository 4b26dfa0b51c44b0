#include "results/report/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "reference/base/characters.h"

enum { GAP = 2, LEAST_WIDTH = 6, LEAST_COLUMNS = 40, PARAGRAPH = 2048 };

void table_init(struct table *table, const struct table_column column[], int columns) {
    *table = (struct table){.columns = columns, .column = column};
}

void table_free(struct table *table) {
    for (int r = 0; r < table->rows; r++)
        free(table->remark[r]);
    free(table->remark);
    free(table->cell);
    *table = (struct table){0};
}

int table_add(struct table *table, int *row, struct mp_error *error) {
    if (table->rows == table->capacity) {
        int capacity = table->capacity ? table->capacity * 2 : 16;
        size_t size = (size_t)capacity * (size_t)table->columns * sizeof *table->cell;
        void *cell = realloc(table->cell, size);
        table->cell = cell ? cell : table->cell;
        char **remark = realloc(table->remark, (size_t)capacity * sizeof *remark);
        table->remark = remark ? remark : table->remark;
        if (!cell || !remark)
            return mp_fail(error, MP_ENOMEM, "no memory for a table");
        table->capacity = capacity;
    }
    for (int c = 0; c < table->columns; c++)
        table->cell[table->rows * table->columns + c][0] = '\0';
    table->remark[table->rows] = NULL;
    table->rows++;
    if (row)
        *row = table->rows - 1;
    return MP_OK;
}

int table_width(FILE *out) {
    struct winsize window = {0};
    const char *columns = getenv("COLUMNS");
    int file = fileno(out), width = columns ? atoi(columns) : 0;
    if (file < 0 || !isatty(file))
        return TABLE_WIDTH;
    if (width <= 0 && !ioctl(file, TIOCGWINSZ, &window))
        width = window.ws_col;
    return width <= 0 ? TABLE_WIDTH : width < LEAST_COLUMNS ? LEAST_COLUMNS : width;
}

static bool continues_character(char byte) {
    return ((unsigned char)byte & 0xc0) == 0x80;
}

void table_set(struct table *table, int column, const char *format, ...) {
    char text[4 * TABLE_CELL] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mp_clean_text(table->cell[(table->rows - 1) * table->columns + column], TABLE_CELL, text);
}

void table_set_number(struct table *table, int column, double value, int decimals) {
    if (isnan(value))
        table_set(table, column, "-");
    else
        table_set(table, column, "%.*f", decimals, value);
}

int table_remark(struct table *table, const char *text, struct mp_error *error) {
    size_t size = strlen(text) + 1;
    char **remark = &table->remark[table->rows - 1];
    free(*remark);
    *remark = malloc(size);
    if (!*remark)
        return mp_fail(error, MP_ENOMEM, "no memory for a table");
    mp_clean_text(*remark, size, text);
    return MP_OK;
}

/* Characters, taken as one column each. */
static int width_of(const char *text, size_t length) {
    int width = 0;
    for (size_t i = 0; i < length; i++)
        width += !continues_character(text[i]); /* NOLINT(clang-analyzer-core.CallAndMessage): as
                                                   far as mp_clean_text has written */
    return width;
}

/* The part of a header on its first or second line. */
static const char *header_line(const char *header, int line, size_t *length) {
    const char *end = strchr(header, '\n');
    *length = end ? (size_t)(end - header) : strlen(header);
    if (line == 0)
        return header;
    const char *second = end ? end + 1 : "";
    *length = strlen(second);
    return second;
}

static int longest_word(const char *text) {
    int longest = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        int width = width_of(text, length);
        longest = width > longest ? width : longest;
        text += length + (text[length] == ' ');
    }
    return longest;
}

/* A column's width without and with line breaks in its cells. */
static void measure_column(const struct table *table, int column, int *whole, int *broken) {
    *whole = 0;
    for (int line = 0; line < 2; line++) {
        size_t length;
        const char *text = header_line(table->column[column].header, line, &length);
        int width = width_of(text, length);
        *whole = width > *whole ? width : *whole;
    }
    *broken = *whole;
    for (int r = 0; r < table->rows; r++) {
        const char *text = table->cell[r * table->columns + column];
        int width = width_of(text, strlen(text));
        int least = table->column[column].align == TABLE_LEFT ? longest_word(text) : width;
        *whole = width > *whole ? width : *whole;
        *broken = least > *broken ? least : *broken;
    }
}

/* Of the columns that are shown; the others are negative. */
static int total_width(const struct table *table, const int widths[]) {
    int total = -GAP;
    for (int c = 0; c < table->columns; c++)
        total += widths[c] < 0 ? 0 : widths[c] + GAP;
    return total;
}

/* Makes left-aligned columns narrower, down to `least`, until the table fits. */
static void shrink(const struct table *table, int room, int widths[], const int least[]) {
    for (int total = total_width(table, widths); total > room; total--) {
        int widest = -1;
        for (int c = 0; c < table->columns; c++)
            if (table->column[c].align == TABLE_LEFT && widths[c] > least[c] &&
                (widest < 0 || widths[c] > widths[widest]))
                widest = c;
        if (widest < 0)
            return;
        widths[widest]--;
    }
}

static bool is_empty(const struct table *table, int column) {
    for (int r = 0; r < table->rows; r++) {
        const char *text = table->cell[r * table->columns + column];
        if (*text && strcmp(text, "-") != 0)
            return false;
    }
    return true;
}

/* Width of every column, -1 for one that is left out. */
static void find_widths(const struct table *table, int room, int widths[]) {
    int least[TABLE_COLUMNS], last_resort[TABLE_COLUMNS];
    for (int c = 0; c < table->columns; c++) {
        measure_column(table, c, &widths[c], &least[c]);
        last_resort[c] = LEAST_WIDTH;
        if (c > 0 && table->drops_empty && is_empty(table, c))
            widths[c] = least[c] = -1;
    }
    while (total_width(table, table->lines_first ? widths : least) > room) {
        int first = -1;
        for (int c = 0; c < table->columns; c++)
            if (table->optional[c] && least[c] >= 0 &&
                (first < 0 || table->optional[c] > table->optional[first]))
                first = c;
        if (first < 0)
            break;
        widths[first] = least[first] = -1;
    }
    shrink(table, room, widths, least);
    shrink(table, room, widths, last_resort);
}

/* The bytes of the first `width` characters. */
static int prefix_bytes(const char *text, int width) {
    int bytes = 0;
    for (; text[bytes]; bytes++) {
        if (!continues_character(text[bytes]) && width-- == 0)
            break;
    }
    return bytes;
}

/* Bytes of the line that a cell's text begins with, at most `width` characters: up to a blank if
 * the text goes on. */
static size_t line_bytes(const char *text, int width) {
    size_t most = (size_t)prefix_bytes(text, width), length = most;
    if (!text[most])
        return most;
    while (length > 0 && text[length] != ' ')
        length--;
    return length > 0 ? length : most;
}

/* Blanks wait in *blanks until something follows them: no line ends in blanks. */
static void print_cell(FILE *out, const char *text, size_t length, int width, bool right,
                       int *blanks) {
    int own = width_of(text, length), shown = own < width ? own : width;
    *blanks += right ? width - shown : 0;
    if (length > 0) {
        fprintf(out, "%*s", *blanks, "");
        *blanks = 0;
    }
    if (own > width)
        fprintf(out, "%.*s..", prefix_bytes(text, width - 2), text);
    else
        fprintf(out, "%.*s", (int)length, text);
    *blanks += (right ? 0 : width - shown) + GAP;
}

/* Cells beside each other, in as many lines as they take; a negative width leaves one out. */
static void print_cells(const char *rest[], const struct table_column column[], const int widths[],
                        int cells, FILE *out) {
    bool goes_on = true;
    while (goes_on) {
        int blanks = 0;
        goes_on = false;
        for (int c = 0; c < cells; c++) {
            bool right = column[c].align == TABLE_RIGHT;
            if (widths[c] < 0)
                continue;
            size_t length = right ? strlen(rest[c]) : line_bytes(rest[c], widths[c]);
            print_cell(out, rest[c], length, widths[c], right, &blanks);
            rest[c] += length;
            rest[c] += strspn(rest[c], " ");
            goes_on = goes_on || *rest[c];
        }
        fputc('\n', out);
    }
}

/* A remark has all the room behind the first column, as a paragraph has it. */
static void print_row(const struct table *table, int row, const int widths[], FILE *out) {
    static const struct table_column both[2] = {{"", TABLE_LEFT}, {"", TABLE_LEFT}};
    const char *rest[TABLE_COLUMNS] = {""};
    for (int c = 0; c < table->columns; c++)
        rest[c] = table->cell[row * table->columns + c];
    if (!table->remark[row]) {
        print_cells(rest, table->column, widths, table->columns, out);
        return;
    }
    int room = table_width(out);
    room = (room < PARAGRAPH_WIDTH ? room : PARAGRAPH_WIDTH) - widths[0] - GAP;
    const int split[2] = {widths[0], room > LEAST_WIDTH ? room : LEAST_WIDTH};
    rest[1] = table->remark[row];
    print_cells(rest, both, split, 2, out);
}

void table_print(const struct table *table, FILE *out) {
    int widths[TABLE_COLUMNS] = {0};
    find_widths(table, table_width(out), widths);
    bool two_lines = false;
    for (int c = 0; c < table->columns; c++)
        two_lines = two_lines || (widths[c] >= 0 && strchr(table->column[c].header, '\n'));
    /* One-line headers stand on the lower line. */
    for (int line = two_lines ? 0 : 1; line < 2; line++) {
        int blanks = 0;
        for (int c = 0; c < table->columns; c++) {
            if (widths[c] < 0)
                continue;
            const char *header = table->column[c].header;
            bool own_two = strchr(header, '\n') != NULL;
            size_t length = 0;
            const char *text = own_two     ? header_line(header, line, &length)
                               : line == 1 ? header_line(header, 0, &length)
                                           : "";
            print_cell(out, text, length, widths[c], table->column[c].align == TABLE_RIGHT,
                       &blanks);
        }
        fputc('\n', out);
    }
    for (int r = 0; r < table->rows; r++)
        print_row(table, r, widths, out);
}

void table_paragraph(FILE *out, const char *format, ...) {
    char text[PARAGRAPH], clean[PARAGRAPH];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t end = strlen(text);
    bool apart = end > 0 && text[end - 1] == '\n';
    if (apart)
        text[end - 1] = '\0';
    mp_clean_text(clean, sizeof clean, text);
    int at = 0, room = table_width(out);
    room = room < PARAGRAPH_WIDTH ? room : PARAGRAPH_WIDTH;
    for (const char *word = clean; *word;) {
        size_t length = strcspn(word, " ");
        int width = width_of(word, length);
        if (at > 0 && at + 1 + width > room) {
            fputc('\n', out);
            at = 0;
        }
        at += fprintf(out, "%s", at > 0 ? " " : "") + width;
        fprintf(out, "%.*s", (int)length, word);
        word += length + (word[length] == ' ');
    }
    fputs(apart ? "\n\n" : "\n", out);
}

void table_command(FILE *out, const char *command) {
    if (*command)
        fprintf(out, "    %s\n", command);
}
