#include "results/report/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "reference/base/arena.h"
#include "reference/base/characters.h"
#include "results/report/query.h"

enum { GAP = 2, LEAST_WIDTH = 6, BROKEN_NAME = 12, LEAST_COLUMNS = 40, PARAGRAPH = 2048 };

struct table table_of(const struct table_column column[], int columns) {
    struct table table = {.columns = columns, .column = column};
    for (int c = 0; c < columns; c++)
        table.optional[c] = column[c].optional;
    return table;
}

void table_free(struct table *table) {
    for (int r = 0; r < table->rows; r++)
        free(table->remark[r]);
    for (int i = 0; i < table->rows * table->columns; i++)
        json_decref(table->cell[i].value);
    free(table->remark);
    free(table->cell);
    *table = (struct table){0};
}

static struct table_cell *last_row(const struct table *table) {
    return &table->cell[(table->rows - 1) * table->columns];
}

int table_add(struct table *table, int *row, struct mp_error *error) {
    const size_t size = (size_t)table->columns * sizeof *table->cell;
    if (!mp_list_room(&table->cell, (size_t)table->rows, size) ||
        !MP_ROOM(table->remark, table->rows))
        return mp_no_memory(error);
    table->remark[table->rows++] = NULL;
    memset(last_row(table), 0, size);
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

static void set_value(struct table_cell *cell, json_t *value) {
    json_decref(cell->value);
    cell->value = value;
}

void table_set(struct table *table, int column, const char *format, ...) {
    char text[4 * TABLE_CELL] = "";
    struct table_cell *cell = &last_row(table)[column];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mp_clean_text(cell->text, TABLE_CELL, text);
    set_value(cell, text_value(text));
}

/* As people see it. */
static void format_number(const struct table_column *column, double value, char text[TABLE_CELL]) {
    bool is_signed = column->decimals > 0 && column->decimals & TABLE_SIGNED;
    int decimals = column->decimals < 0 ? column->decimals : column->decimals % TABLE_SIGNED;
    if (column->unit && strcmp(column->unit, "%") == 0)
        value *= 100;
    if (column->decimals >= TABLE_FEWER)
        decimals -= (fabs(value) >= 100) + (fabs(value) >= 1000);
    if (!isfinite(value))
        snprintf(text, TABLE_CELL, "-");
    else if (decimals == TABLE_POWER)
        snprintf(text, TABLE_CELL, "%.1e", value);
    else if (decimals == TABLE_EXACT)
        snprintf(text, TABLE_CELL, "%.10g", value);
    else
        snprintf(text, TABLE_CELL, is_signed ? "%+.*f" : "%.*f", decimals, value);
    if (*text == '-' && text[1] && !text[strcspn(text, "123456789")])
        memmove(text, text + 1, strlen(text)); /* a zero has no sign */
}

void table_number(struct table *table, int column, double value) {
    struct table_cell *cell = &last_row(table)[column];
    format_number(&table->column[column], value, cell->text);
    set_value(cell, number_value(value));
}

void table_set_number(struct table *table, int column, double value, int decimals) {
    struct table_cell *cell = &last_row(table)[column];
    format_number(&(struct table_column){.decimals = decimals}, value, cell->text);
    set_value(cell, number_value(value));
}

int table_remark(struct table *table, const char *text, struct mp_error *error) {
    size_t size = strlen(text) + 1;
    char **remark = &table->remark[table->rows - 1];
    free(*remark);
    *remark = malloc(size);
    if (!*remark)
        return mp_no_memory(error);
    mp_clean_text(*remark, size, text);
    return MP_OK;
}

/* ---- rows from structs and queries ---- */

static json_t *value_of(const struct table_column *column, const void *row) {
    char text[TABLE_CELL] = "";
    const char *at = (const char *)row + column->at;
    if (column->show && column->kind <= TABLE_LONG) {
        column->show(row, text);
        return text_value(text);
    }
    switch (column->kind) {
    case TABLE_ARRAY:
        return *at ? text_value(at) : json_null();
    case TABLE_NUMBER:
        return number_value(*(const double *)(const void *)at);
    case TABLE_MS:
        return number_value(1e3 * *(const double *)(const void *)at);
    case TABLE_COUNT:
        return json_integer(*(const int *)(const void *)at);
    case TABLE_LARGE:
        return json_integer(*(const int64_t *)(const void *)at);
    case TABLE_FLAG:
        return json_boolean(*(const bool *)(const void *)at);
    default:
        return text_value(*(const char *const *)(const void *)at);
    }
}

json_t *table_object(const struct table_column column[], int columns, const void *row) {
    json_t *object = json_object();
    for (int c = 0; c < columns; c++)
        if (column[c].key)
            json_object_set_new(object, column[c].key, value_of(&column[c], row));
    return object;
}

/* What people see of a value. */
static void show_value(const struct table_column *column, const json_t *value,
                       char text[TABLE_CELL]) {
    if (json_is_string(value))
        mp_clean_text(text, TABLE_CELL, json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(text, TABLE_CELL, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_number(value) || (column->kind >= TABLE_NUMBER && column->kind <= TABLE_LARGE))
        format_number(column, json_is_number(value) ? json_number_value(value) : NAN, text);
}

/* What a row says instead of its cells. */
static int set_remark(struct table *table, const struct table_column *column, const json_t *value,
                      struct mp_error *error) {
    char text[1024];
    if (column->kind != TABLE_REMARK || !json_is_string(value))
        return MP_OK;
    snprintf(text, sizeof text, "%s: %.900s", column->header, json_string_value(value));
    return table_remark(table, text, error);
}

int table_fill(struct table *table, const void *rows, int count, size_t size,
               struct mp_error *error) {
    char text[TABLE_CELL] = "";
    for (int r = 0; r < count; r++) {
        const char *row = (const char *)rows + (size_t)r * size;
        MP_TRY(table_add(table, NULL, error));
        for (int c = 0; c < table->columns; c++) {
            const struct table_column *column = &table->column[c];
            struct table_cell *cell = &last_row(table)[c];
            if (column->key || !column->show)
                cell->value = value_of(column, row);
            if (column->show)
                column->show(row, text), mp_clean_text(cell->text, TABLE_CELL, text);
            else
                show_value(column, cell->value, cell->text);
            MP_TRY(set_remark(table, column, cell->value, error));
        }
    }
    return MP_OK;
}

void table_query(struct table *table, struct query *query) {
    while (query_next(query)) {
        query->code = table_add(table, NULL, query->error);
        for (int c = 0; c < table->columns && !query->code; c++) {
            struct table_cell *cell = &last_row(table)[c];
            cell->value = query_value(query->row, c);
            show_value(&table->column[c], cell->value, cell->text);
        }
    }
}

int table_read(struct table *table, struct mp_store *store, const char *sql, int64_t run_id,
               struct mp_error *error) {
    struct query query = query_begin(store, sql, run_id, error);
    table_query(table, &query);
    return query_end(&query);
}

/* ---- text ---- */

/* Characters, taken as one column each. */
static int width_of(const char *text, size_t length) {
    int width = 0;
    for (size_t i = 0; i < length; i++)
        width += !continues_character(text[i]); /* NOLINT(clang-analyzer-core.CallAndMessage): as
                                                   far as mp_clean_text has written */
    return width;
}

/* The part of a header on its first or second line; the unit is the second's. */
static const char *header_line(const struct table_column *column, int line, char text[TABLE_CELL]) {
    const char *end = strchr(column->header, '\n'), *unit = column->unit ? column->unit : "";
    int first = end ? (int)(end - column->header) : (int)strlen(column->header);
    if (line == 0)
        snprintf(text, TABLE_CELL, "%.*s", first, column->header);
    else
        snprintf(text, TABLE_CELL, "%s%s%s", end ? end + 1 : "", end && *unit ? " " : "", unit);
    return text;
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

bool table_has_words(const struct table_column *column) {
    return column->kind == TABLE_LEFT || column->kind == TABLE_LONG || column->kind == TABLE_ARRAY;
}

/* Behind the first column a remark stands instead. */
static const char *shown_text(const struct table *table, int row, int column) {
    return column > 0 && table->remark[row] ? "" : table->cell[row * table->columns + column].text;
}

/* A column's width without and with line breaks in its cells. */
static void measure_column(const struct table *table, int column, int *whole, int *broken) {
    char header[TABLE_CELL];
    *whole = 0;
    for (int line = 0; line < 2; line++) {
        header_line(&table->column[column], line, header);
        int width = width_of(header, strlen(header));
        *whole = width > *whole ? width : *whole;
    }
    *broken = *whole;
    for (int r = 0; r < table->rows; r++) {
        const char *text = shown_text(table, r, column);
        int width = width_of(text, strlen(text));
        int least = table_has_words(&table->column[column]) ? longest_word(text) : width;
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
            if (table_has_words(&table->column[c]) && widths[c] > least[c] &&
                (widest < 0 || widths[c] > widths[widest]))
                widest = c;
        if (widest < 0)
            return;
        widths[widest]--;
    }
}

bool table_shows(const struct table *table, int column) {
    const struct table_column *own = &table->column[column];
    bool is_empty = true, is_zero = true;
    for (int r = 0; r < table->rows; r++) {
        const char *text = shown_text(table, r, column);
        is_empty = is_empty && (!*text || !strcmp(text, "-"));
        is_zero =
            is_zero && !(json_number_value(table->cell[r * table->columns + column].value) != 0);
    }
    return own->header && own->kind != TABLE_REMARK &&
           !(column > 0 && table->drops_empty && is_empty) && !(own->only_used && is_zero);
}

/* Where columns go on below: words give way until each column has room beside the first, which
 * leaves them half of it. */
static void make_room(const struct table *table, int room, int widths[], const int least[]) {
    int widest = 0;
    bool has_words = false;
    for (int c = 1; c < table->columns; c++)
        if (table_has_words(&table->column[c]))
            has_words = has_words || widths[c] >= 0;
        else
            widest = widths[c] > widest ? widths[c] : widest;
    for (int c = 0; c < table->columns; c++) {
        int most = room - GAP - (c == 0 ? widest : widths[0]);
        if (c == 0 && has_words && most > room / 2)
            most = least[0] > room / 2 ? least[0] : room / 2;
        if (most < least[c])
            most = most > LEAST_WIDTH ? most : least[c] < LEAST_WIDTH ? least[c] : LEAST_WIDTH;
        if (table_has_words(&table->column[c]) && widths[c] > most)
            widths[c] = most;
    }
}

/* Width of every column, -1 for one that is left out. */
static void find_widths(const struct table *table, int room, int widths[]) {
    int least[TABLE_COLUMNS] = {0}, last_resort[TABLE_COLUMNS];
    for (int c = 0; c < table->columns; c++) {
        widths[c] = least[c] = -1;
        if (table_shows(table, c))
            measure_column(table, c, &widths[c], &least[c]);
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
    memcpy(last_resort, least, sizeof least);
    if (least[0] > BROKEN_NAME) /* names are as long as somebody likes */
        last_resort[0] = BROKEN_NAME;
    if (total_width(table, last_resort) > room) {
        make_room(table, room, widths, last_resort);
        return;
    }
    shrink(table, room, widths, least);
    shrink(table, room, widths, last_resort);
}

/* The widths of the first column and of those from *next on that have room beside it; *next: the
 * column that the rest begins with. */
static void take_block(const struct table *table, int room, const int widths[], int *next,
                       int block[]) {
    for (int c = 0; c < table->columns; c++)
        block[c] = c == 0 ? widths[0] : -1;
    for (bool is_alone = true; *next < table->columns; ++*next) {
        block[*next] = widths[*next];
        if (!is_alone && total_width(table, block) > room) {
            block[*next] = -1;
            return;
        }
        is_alone = is_alone && widths[*next] < 0;
    }
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
            if (widths[c] < 0)
                continue;
            bool right = !table_has_words(&column[c]);
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
    static const struct table_column both[2] = {{"", .kind = TABLE_LEFT}, {"", .kind = TABLE_LEFT}};
    const char *rest[TABLE_COLUMNS] = {""};
    for (int c = 0; c < table->columns; c++)
        rest[c] = table->cell[row * table->columns + c].text;
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

/* What a row says instead of its cells is said once. */
static void print_block(const struct table *table, const int widths[], bool is_first, FILE *out) {
    char text[TABLE_CELL];
    bool two_lines = false;
    for (int c = 0; c < table->columns; c++)
        two_lines = two_lines || (widths[c] >= 0 && *header_line(&table->column[c], 1, text));
    /* One-line headers stand on the lower line. */
    for (int line = two_lines ? 0 : 1; line < 2; line++) {
        int blanks = 0;
        for (int c = 0; c < table->columns; c++) {
            if (widths[c] < 0)
                continue;
            const struct table_column *column = &table->column[c];
            bool own_two = *header_line(column, 1, text);
            header_line(column, own_two ? line : 1 - line, text);
            print_cell(out, text, strlen(text), widths[c], !table_has_words(column), &blanks);
        }
        fputc('\n', out);
    }
    for (int r = 0; r < table->rows; r++)
        if (is_first || !table->remark[r])
            print_row(table, r, widths, out);
}

void table_print(const struct table *table, FILE *out) {
    int widths[TABLE_COLUMNS] = {-1}, block[TABLE_COLUMNS] = {-1}; /* also without columns */
    int room = table_width(out), next = 1;
    find_widths(table, room, widths);
    do {
        bool is_first = next == 1;
        if (!is_first)
            fputc('\n', out);
        take_block(table, room, widths, &next, block);
        print_block(table, block, is_first, out);
    } while (next < table->columns);
}

void table_filled(FILE *out, int at, int indent, const char *text) {
    const int page = table_width(out), room = page < PARAGRAPH_WIDTH ? page : PARAGRAPH_WIDTH;
    bool starts = true;
    for (const char *word = text; *word;) {
        size_t length = strcspn(word, " \n");
        int width = width_of(word, length);
        if (*word == '\n' || (length > 0 && !starts && at + 1 + width > room)) {
            if (!starts)
                fputc('\n', out);
            at = 0;
            starts = true;
        }
        if (length > 0) {
            char *clean = strndup(word, length);
            int blanks = starts ? indent - at : 1;
            fprintf(out, "%*s%s", blanks, "", clean ? mp_clean_text(clean, length + 1, clean) : "");
            free(clean);
            at += blanks + width;
            starts = false;
        }
        word += length + (length == 0 || word[length] == ' ');
    }
    if (!starts)
        fputc('\n', out);
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
    table_filled(out, 0, 0, mp_clean_text(clean, sizeof clean, text));
    if (apart)
        fputc('\n', out);
}

void table_command(FILE *out, const char *command) {
    if (*command)
        fprintf(out, "    %s\n", command);
}
