#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/whole_file.h"
#include "results/report/browser.h"
#include "results/report/command.h"
#include "results/report/page.h"
#include "results/report/query.h"
#include "results/report/table.h"
#include "results/report/vega.h"

void page_print(FILE *out, const char *html, ...) {
    va_list arguments;
    va_start(arguments, html);
    for (const char *at = html; *at; at++) {
        if (at[0] == '%' && at[1] == 's')
            markup_text(out, va_arg(arguments, const char *));
        else if (at[0] == '%' && at[1] == 'd')
            fprintf(out, "%d", va_arg(arguments, int));
        else {
            fputc(*at, out);
            continue;
        }
        at++;
    }
    va_end(arguments);
}

void page_lines(FILE *out, const char *text) {
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        while (line[length] && line[length + 1] == ' ')
            length += 1 + strcspn(line + length + 1, "\n");
        char *words = strndup(line, length);
        page_print(out, "<p class=\"muted\">%s</p>\n", words ? words : "");
        free(words);
        line += length + (line[length] == '\n');
    }
}

void page_begin(FILE *out, const char *heading, const char *about) {
    page_print(out, "<header>\n<h1>%s</h1>\n", heading);
    page_lines(out, about);
    fputs("</header>\n<main>\n<noscript><p>The charts need JavaScript.</p></noscript>\n", out);
}

void page_end(FILE *out) {
    fputs("</main>\n<footer><p>Written by moeperf. Charts: Vega. Nothing on this page is loaded "
          "from anywhere.</p></footer>\n",
          out);
}

void page_table(FILE *out, const struct table *table, const char *caption, const char *summary) {
    if (table->rows == 0)
        return;
    if (summary)
        page_print(out, "<details><summary>%s</summary>", summary);
    table_html(table, caption, out);
    if (summary)
        fputs("</details>\n", out);
}

int page_query(struct page *page, const char *sql, int64_t run_id,
               const struct table_column column[], int columns, const char *caption,
               const char *summary, struct mp_error *error) {
    MP_AUTO(table) struct table table = table_of(column, columns);
    MP_TRY(table_read(&table, page->store, sql, run_id, error));
    page_table(page->out, &table, caption, summary);
    return MP_OK;
}

/* ---- findings ---- */

/* Lines of a narrow page break between words, and not inside "--run". */
void page_command(FILE *out, const char *command) {
    char word[COMMAND_TEXT];
    fputs("<code class=\"command\">", out);
    for (const char *at = command; *at;) {
        int length = (int)(strcspn(at, " ") + strspn(at + strcspn(at, " "), " "));
        snprintf(word, sizeof word, "%.*s", length, at);
        page_print(out, "<span>%s</span>", word);
        at += length;
    }
    fputs("</code>", out);
}

void page_findings(FILE *out, const json_t *findings) {
    size_t i;
    json_t *finding;
    fputs("<ul class=\"findings\">\n", out);
    for (int warnings = 0; warnings < 2; warnings++)
        json_array_foreach(findings, i, finding) {
            const char *advice = json_string_value(json_object_get(finding, "advice"));
            const char *command = json_string_value(json_object_get(finding, "command"));
            if (json_is_true(json_object_get(finding, "warning")) != warnings)
                continue;
            fputs(warnings ? "<li class=\"warning\">" : "<li>", out);
            page_print(out, "<strong>%s</strong> %s",
                       json_string_value(json_object_get(finding, "title")),
                       json_string_value(json_object_get(finding, "text")));
            if (advice)
                page_print(out, "<span class=\"advice\">%s</span>", advice);
            if (command)
                page_command(out, command);
            fputs("</li>\n", out);
        }
    fputs("</ul>\n", out);
}

/* ---- the page around it ---- */

/* JSON in which nothing can end a script element, since '<' only stands in strings, and with '?'
 * for characters that can't be shown. */
static int write_json(json_t *object, FILE *out, struct mp_error *error) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(5)) : NULL;
    json_decref(object);
    if (!text)
        return mp_no_memory(error);
    for (const char *at = text; *at;) {
        uint32_t character;
        int length = mp_character_decode(at, &character); /* jansson writes nothing but UTF-8 */
        if (*at == '<')
            fputs("\\u003c", out);
        else if (mp_character_is_shown(character))
            fwrite(at, 1, (size_t)length, out);
        else
            fputc('?', out);
        at += length;
    }
    free(text);
    return MP_OK;
}

static json_t *data_object(json_t *figures, struct mp_error *error) {
    json_t *charts = json_object(), *families = json_array();
    for (const struct page_chart *chart = page_charts; chart->name; chart++) {
        json_error_t fault;
        json_t *spec = json_loads(chart->text, 0, &fault);
        if (!spec)
            mp_fail(error, MP_EFORMAT, "charts/%s.json:%d: %s", chart->name, fault.line,
                    fault.text);
        json_object_set_new(charts, chart->name, spec);
    }
    for (int f = 0; f < PAGE_FAMILIES; f++)
        json_array_append_new(families, json_string(page_families[f]));
    return json_pack("{so so sO}", "charts", charts, "families", families, "figures", figures);
}

static int fill_in(const char *name, size_t length, const char *title, const char *body,
                   json_t *figures, FILE *out, struct mp_error *error) {
    char folder[MP_VEGA_FOLDER];
    if (strncmp(name, "title", length) == 0)
        markup_text(out, title);
    else if (strncmp(name, "style", length) == 0)
        fputs(page_style, out);
    else if (strncmp(name, "body", length) == 0)
        fputs(body, out);
    else if (strncmp(name, "data", length) == 0)
        MP_TRY(write_json(data_object(figures, error), out, error));
    else if (strncmp(name, "licence", length) == 0)
        MP_TRY(mp_vega_write_licence(out, error));
    else if (strncmp(name, "script", length) == 0)
        fputs(page_script, out);
    else if (strncmp(name, "library", length) == 0) {
        MP_TRY(mp_vega_find(folder, error));
        MP_TRY(mp_vega_write(folder, out, error));
    }
    return error->code;
}

/* The page around `body`, as page/report.html has it. */
static int assemble(const char *title, const char *body, json_t *figures, FILE *out,
                    struct mp_error *error) {
    const char *at = page_template;
    for (const char *name, *end; (name = strstr(at, "{{")) && (end = strstr(name, "}}"));
         at = end + 2) {
        fwrite(at, 1, (size_t)(name - at), out);
        MP_TRY(fill_in(name + 2, (size_t)(end - name - 2), title, body, figures, out, error));
    }
    fputs(at, out);
    return check_printed(out, error);
}

/* Ends a text in memory. */
static int close_text(FILE *text, int code, struct mp_error *error) {
    return text && !fclose(text) ? code : mp_no_memory(error);
}

/* The whole page as text, to be freed. */
static int make_page(struct page *page, page_body *body, const void *context, char **html,
                     struct mp_error *error) {
    MP_AUTO(text) char *text = NULL;
    MP_AUTO(json) json_t *figures = page->figures = json_array();
    size_t size;
    page->out = open_memstream(&text, &size);
    MP_TRY(close_text(page->out, page->out ? body(context, page, error) : MP_OK, error));
    FILE *whole = open_memstream(html, &size);
    return close_text(whole, whole ? assemble(page->title, text, figures, whole, error) : MP_OK,
                      error);
}

int page_file(const char *path, const char *text, struct mp_error *error) {
    struct mp_whole_file file;
    MP_TRY(mp_whole_file_open(&file, path, error));
    fputs(text, file.stream);
    return mp_whole_file_close(&file, MP_OK, error);
}

int mp_page_check(const struct mp_page_output *output, struct mp_error *error) {
    char folder[MP_VEGA_FOLDER], browser[MP_BROWSER_PATH];
    if (output->html)
        MP_TRY(mp_whole_file_try(output->html, error));
    if (output->figures) {
        MP_TRY(mp_browser_find(browser, error));
        MP_TRY(page_paper_check(output->figures, error));
    }
    return output->html || output->figures ? mp_vega_find(folder, error) : MP_OK;
}

int page_write(const struct mp_page_output *output, struct page *page, page_body *body,
               const void *context, struct mp_error *error) {
    MP_AUTO(text) char *html = NULL;
    MP_TRY(mp_page_check(output, error));
    MP_TRY(make_page(page, body, context, &html, error));
    if (output->html)
        MP_TRY(page_file(output->html, html, error));
    return output->figures ? page_paper(html, output->figures, error) : MP_OK;
}
