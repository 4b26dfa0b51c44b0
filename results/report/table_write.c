/* Tables in the formats of other programs. */
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/csv.h"
#include "results/report/table.h"

/* What stands for the character, or NULL if it stands for itself. */
static const char *in_markup(uint32_t character) {
    switch (character) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\n':
    case '\t':
    case '\r':
        return " ";
    default:
        return mp_character_is_shown(character) ? NULL : "?";
    }
}

void markup_text(FILE *out, const char *text) {
    while (*text) {
        uint32_t character;
        int length = mp_character_decode(text, &character);
        const char *instead = length ? in_markup(character) : "?";
        if (instead)
            fputs(instead, out);
        else
            fwrite(text, 1, (size_t)length, out);
        text += length ? length : 1;
    }
}

json_t *table_json(const struct table *table) {
    json_t *rows = json_array();
    for (int r = 0; r < table->rows; r++) {
        json_t *row = json_object();
        for (int c = 0; c < table->columns; c++) {
            json_t *value = table->cell[r * table->columns + c].value;
            if (table->column[c].key)
                json_object_set_new(row, table->column[c].key,
                                    value ? json_incref(value) : json_null());
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- CSV ---- */

static void csv_value(const json_t *value, FILE *out) {
    if (json_is_string(value))
        mp_csv_text(out, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        fprintf(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        mp_csv_real(out, json_real_value(value));
    else if (json_is_boolean(value))
        fputc(json_is_true(value) ? '1' : '0', out);
}

/* A header in one line, with its unit: words that it divides are whole. */
static const char *header_of(const struct table_column *column, char text[TABLE_CELL]) {
    size_t length = 0;
    for (const char *at = column->header; *at && length + 1 < TABLE_CELL; at++)
        if (*at == '-' && at[1] == '\n')
            at++;
        else if (*at != '\n' || length > 0)
            text[length++] = *at == '\n' ? ' ' : *at;
    snprintf(text + length, TABLE_CELL - length, "%s%s", column->unit ? " " : "",
             column->unit ? column->unit : "");
    return text;
}

/* Keys, and headers where a table has none. */
static bool is_in_csv(const struct table *table, int column) {
    bool has_keys = false;
    for (int c = 0; c < table->columns; c++)
        has_keys = has_keys || table->column[c].key;
    return !has_keys || table->column[column].key;
}

static void write_csv(const struct table *table, const char *title, FILE *out) {
    char text[TABLE_CELL];
    for (int r = -1; r < table->rows; r++) {
        const char *first = r < 0 ? "table" : title;
        mp_csv_text(out, first, strlen(first));
        for (int c = 0; c < table->columns; c++) {
            const struct table_column *column = &table->column[c];
            if (!is_in_csv(table, c))
                continue;
            fputc(',', out);
            const char *name = column->key ? column->key : header_of(column, text);
            if (r < 0)
                mp_csv_text(out, name, strlen(name));
            else
                csv_value(table->cell[r * table->columns + c].value, out);
        }
        fputc('\n', out);
    }
}

/* ---- what people read: Markdown, LaTeX and HTML ---- */

/* Writes the cell in front of which `place` others are in its row and that is as wide as `span`. */
typedef void put_cell(const struct table_column *column, int place, int span, const char *text,
                      FILE *out);

/* Sentences are there in full. */
static const char *text_of(const struct table_column *column, const struct table_cell *cell) {
    bool in_full = column->kind == TABLE_LONG && json_is_string(cell->value);
    return in_full ? json_string_value(cell->value) : cell->text;
}

/* A row after the other, each between `begin` and `end`. */
static void write_rows(const struct table *table, put_cell *put, const char *begin, const char *end,
                       FILE *out) {
    int shown = 0;
    for (int c = 0; c < table->columns; c++)
        shown += table_shows(table, c);
    for (int r = 0; r < table->rows; r++) {
        int place = 0;
        fputs(begin, out);
        for (int c = 0; c < table->columns; c++) {
            bool is_remark = table->remark[r] && place == 1;
            if (!table_shows(table, c))
                continue;
            const char *text =
                is_remark ? table->remark[r]
                          : text_of(&table->column[c], &table->cell[r * table->columns + c]);
            put(&table->column[c], place++, is_remark ? shown - 1 : 1, text, out);
            if (is_remark)
                break;
        }
        fputs(end, out);
    }
}

static void write_header(const struct table *table, put_cell *put, FILE *out) {
    char text[TABLE_CELL];
    for (int c = 0, place = 0; c < table->columns; c++)
        if (table_shows(table, c))
            put(&table->column[c], place++, 1, header_of(&table->column[c], text), out);
}

/* A clean text, each character of `special` as the text of the same place in `instead`. */
static void escape(const char *text, const char *special, const char *const instead[], FILE *out) {
    while (*text) {
        uint32_t character;
        int length = mp_character_decode(text, &character);
        const char *found = strchr(special, *text);
        if (found)
            fputs(instead[found - special], out);
        else if (length && mp_character_is_shown(character))
            fwrite(text, 1, (size_t)length, out);
        else
            fputc('?', out);
        text += length ? length : 1;
    }
}

/* What a column that people see is aligned by. */
static void write_alignment(const struct table *table, const char *words, const char *numbers,
                            FILE *out) {
    for (int c = 0; c < table->columns; c++)
        if (table_shows(table, c))
            fputs(table_has_words(&table->column[c]) ? words : numbers, out);
}

static void put_markdown_text(const char *text, FILE *out) {
    static const char *const instead[] = {"\\\\", "\\`", "\\*", "\\_",   "\\[",  "\\]",
                                          "\\|",  "\\~", "\\$", "&amp;", "&lt;", "&gt;"};
    escape(text, "\\`*_[]|~$&<>", instead, out);
}

static void put_markdown(const struct table_column *column, int place, int span, const char *text,
                         FILE *out) {
    (void)column;
    fputs(place ? " | " : "| ", out);
    put_markdown_text(text, out);
    for (; span > 1; span--)
        fputs(" |", out);
}

static void write_markdown(const struct table *table, const char *title, FILE *out) {
    if (*title) {
        fputs("**", out);
        put_markdown_text(title, out);
        fputs("**\n\n", out);
    }
    write_header(table, put_markdown, out);
    fputs(" |\n", out);
    write_alignment(table, "| --- ", "| ---: ", out);
    fputs("|\n", out);
    write_rows(table, put_markdown, "", " |\n", out);
}

/* Also what would be a ligature, or an argument of the line's end before. */
static void put_latex_text(const char *text, FILE *out) {
    static const char *const instead[] = {"\\textbackslash{}",
                                          "\\{",
                                          "\\}",
                                          "\\$",
                                          "\\&",
                                          "\\#",
                                          "\\%",
                                          "\\_",
                                          "{[}",
                                          "{*}",
                                          "\\textless{}",
                                          "\\textgreater{}",
                                          "\\textbar{}",
                                          "\\textasciitilde{}",
                                          "\\textasciicircum{}",
                                          "\\textasciigrave{}",
                                          "\\textquotedbl{}"};
    char part[2 * TABLE_CELL];
    while (*text) { /* up to the second of two that would be one */
        size_t length = 1;
        while (text[length] && length + 1 < sizeof part &&
               !(text[length] == text[length - 1] && strchr("-',", text[length])))
            length++;
        snprintf(part, sizeof part, "%.*s", (int)length, text);
        escape(part, "\\{}$&#%_[*<>|~^`\"", instead, out);
        text += length;
        fputs(*text ? "{}" : "", out);
    }
}

static void put_latex(const struct table_column *column, int place, int span, const char *text,
                      FILE *out) {
    (void)column;
    fputs(place ? " & " : "  ", out);
    if (span > 1)
        fprintf(out, "\\multicolumn{%d}{l}{", span);
    put_latex_text(text, out);
    if (span > 1)
        fputc('}', out);
}

static void write_latex(const struct table *table, const char *title, FILE *out) {
    fputs("\\begin{table}\n\\centering\n", out);
    if (*title) {
        fputs("\\caption{", out);
        put_latex_text(title, out);
        fputs("}\n", out);
    }
    fputs("\\begin{tabular}{", out);
    write_alignment(table, "l", "r", out);
    fputs("}\n\\toprule\n", out);
    write_header(table, put_latex, out);
    fputs(" \\\\\n\\midrule\n", out);
    write_rows(table, put_latex, "", " \\\\\n", out);
    fputs("\\bottomrule\n\\end{tabular}\n\\end{table}\n", out);
}

static void put_html(const struct table_column *column, int place, int span, const char *text,
                     FILE *out) {
    fputs(place ? "<td" : "<th scope=\"row\"", out);
    if (span > 1)
        fprintf(out, " colspan=\"%d\"", span);
    if (table_has_words(column) || span > 1)
        fprintf(out, " class=\"words%s\"", column->kind == TABLE_LONG || span > 1 ? " long" : "");
    fputc('>', out);
    markup_text(out, *text && strcmp(text, "-") != 0 ? text : "–");
    fputs(place ? "</td>" : "</th>", out);
}

static void put_html_header(const struct table_column *column, int place, int span,
                            const char *text, FILE *out) {
    (void)place, (void)span;
    fprintf(out, "<th scope=\"col\"%s>",
            column->kind == TABLE_LONG ? " class=\"words long\""
            : table_has_words(column)  ? " class=\"words\""
                                       : "");
    markup_text(out, text);
    fputs("</th>", out);
}

void table_html(const struct table *table, const char *caption, FILE *out) {
    if (caption) { /* not the table's own: that would be as wide as the table, and cut with it */
        fputs("<p class=\"caption\">", out);
        markup_text(out, caption);
        fputs("</p>", out);
    }
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>"
          "<thead><tr>",
          out);
    write_header(table, put_html_header, out);
    fputs("</tr></thead>\n<tbody>", out);
    write_rows(table, put_html, "<tr>", "</tr>\n", out);
    fputs("</tbody></table></div>\n", out);
}

void table_write(const struct table *table, enum mp_report_format format, const char *title,
                 FILE *out) {
    if (format == MP_REPORT_CSV)
        write_csv(table, title, out);
    else if (format == MP_REPORT_MARKDOWN)
        write_markdown(table, title, out);
    else if (format == MP_REPORT_LATEX)
        write_latex(table, title, out);
    if (format != MP_REPORT_TEXT)
        return;
    if (*title)
        table_paragraph(out, "%s", title);
    table_print(table, out);
}
