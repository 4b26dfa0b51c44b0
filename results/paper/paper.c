/* Published figures: see paper.h. */
#include "results/paper/paper.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct mp_paper mp_papers[] = {
    {"hecate", mp_paper_hecate},       {"swiftmoe", mp_paper_symi},
    {"fastermoe", mp_paper_fastermoe}, {"smartmoe", mp_paper_smartmoe},
    {"flexmoe", mp_paper_flexmoe},     {"laer", mp_paper_laer},
    {"hetumoe", mp_paper_hetumoe},     {"hiermoe", mp_paper_hiermoe},
    {"tutel", mp_paper_tutel},         {"tamoe", mp_paper_tamoe},
    {"moetuner", mp_paper_moetuner},   {NULL, NULL},
};

static const char *const units[] = {"speed-up", "ratio", "change", "share",      "count",
                                    "ms",       "s",     "hours",  "iterations", NULL};
static const char *const certainties[] = {"stated",      "read in code", "derived",
                                          "second-hand", "from memory",  NULL};

const struct mp_paper *mp_paper_find(const char *name) {
    for (const struct mp_paper *paper = mp_papers; paper->name; paper++)
        if (!strcmp(paper->name, name))
            return paper;
    return NULL;
}

const char *mp_paper_unit_name(enum mp_paper_unit unit) {
    return units[unit];
}

const char *mp_paper_certainty_name(enum mp_paper_certainty certainty) {
    return certainties[certainty];
}

#define FIELD(member) offsetof(struct mp_paper_row, member)
static const struct mp_option row_rows[] = {
    {"", MP_OPTION_LINE, .offset = FIELD(line)},
    {"id", MP_OPTION_STRING, FIELD(id), "", NULL, 0, 0, NULL, "unique in the file"},
    {"what", MP_OPTION_STRING, FIELD(what), "", NULL, 0, 0, NULL, "what the number is"},
    {"setting", MP_OPTION_STRING, FIELD(setting), "", NULL, 0, 0, NULL, "what it depends on"},
    {"source", MP_OPTION_STRING, FIELD(source), "", NULL, 0, 0, NULL, "paper and part"},
    {"note", MP_OPTION_STRING, FIELD(note), "", "", 0, 0, NULL, "why to read it with care"},
    {"unit", MP_OPTION_WORD, FIELD(unit), "", NULL, 0, 0, units, "what it counts"},
    {"certainty", MP_OPTION_WORD, FIELD(certainty), "", NULL, 0, 0, certainties, "how it is known"},
    {"value", MP_OPTION_DOUBLE, FIELD(value), "", "", -1e300, 1e300, NULL, "a single figure"},
    {"low", MP_OPTION_DOUBLE, FIELD(low), "", "", -1e300, 1e300, NULL, "of a range"},
    {"high", MP_OPTION_DOUBLE, FIELD(high), "", "", -1e300, 1e300, NULL, "of it, or \"up to\""},
    {0},
};
static const struct mp_option_form row_form = {"a row", row_rows, sizeof(struct mp_paper_row),
                                               NULL};
#undef FIELD
#define FIELD(member) offsetof(struct mp_published, member)
static const struct mp_option paper_rows[] = {
    {"", MP_OPTION_ITSELF, .offset = FIELD(document)},
    {"paper", MP_OPTION_STRING, FIELD(paper), "", NULL, 0, 0, NULL, "what it is called"},
    {"source", MP_OPTION_STRING, FIELD(source), "", NULL, 0, 0, NULL, "where it is"},
    {"setting", MP_OPTION_STRING, FIELD(setting), "", NULL, 0, 0, NULL, "machines and models"},
    {"rows", MP_OPTION_LIST, FIELD(row), "", NULL, 1, MP_PAPER_ROWS, &row_form, "its figures"},
    {0},
};

static bool is_identifier(const char *id) {
    size_t length = strlen(id);
    return length < 32 && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

/* What one row's rows can't say. */
static int finish_row(const struct mp_reading *reading, struct mp_paper_row *row) {
    bool has_value = !isnan(row->value), has_low = !isnan(row->low), has_high = !isnan(row->high);
    if (!is_identifier(row->id))
        return mp_reading_fail(reading, row->line,
                               "\"%.40s\" is no row's id: at most 31 of a-z 0-9 -", row->id);
    if (has_value ? has_low || has_high : !has_high)
        return mp_reading_fail(reading, row->line,
                               "row \"%s\" needs either value, or high with or without low",
                               row->id);
    if (has_low && !(row->low < row->high))
        return mp_reading_fail(reading, row->line, "row \"%s\": %g .. %g is no range", row->id,
                               row->low, row->high);
    if (has_value)
        row->low = row->high = row->value;
    else if (!has_low)
        row->low = -INFINITY;
    return MP_OK;
}

int mp_published_parse(const char *name, const char *text, struct mp_published **published,
                       struct mp_error *error) {
    const struct mp_reading reading = {name, error};
    MP_AUTO(published) struct mp_published *read = mp_new(1, sizeof *read);
    struct mp_yaml *document = NULL;
    if (!read)
        return mp_no_memory(error);
    MP_TRY(mp_yaml_parse(name, text, strlen(text), &document, error));
    const int code = mp_options_read(&reading, paper_rows, "a paper", document, read);
    read->document = document; /* also where not all of it could be read */
    MP_TRY(code);
    for (int i = 0; i < read->rows; i++)
        MP_TRY(finish_row(&reading, &read->row[i]));
    *published = read;
    read = NULL;
    return MP_OK;
}

void mp_published_destroy(struct mp_published *published) {
    if (published)
        mp_yaml_destroy((struct mp_yaml *)published->document);
    free(published);
}

void mp_paper_range(const struct mp_paper_row *row, double *low, double *high) {
    static const double relative = 0.10, absolute = 0.05;
    bool is_fraction = row->unit == MP_PAPER_CHANGE || row->unit == MP_PAPER_SHARE;
    bool is_range = isfinite(row->low) && row->low < row->high;
    double tolerance = is_range ? 0 : is_fraction ? absolute : relative * fabs(row->high);
    *low = (isfinite(row->low) ? row->low : row->high) - tolerance;
    *high = row->high + tolerance;
}

bool mp_paper_inside(const struct mp_paper_row *row, double value) {
    double low, high;
    mp_paper_range(row, &low, &high);
    return value >= low && value <= high;
}

/* ---- works to cite ---- */

static const char names_field[] = "  names = {";

/* Where the entry behind this one begins; NULL: it is the last. */
static const char *next(const char *entry) {
    const char *at = strstr(entry, "\n@");
    return at ? at + 1 : NULL;
}

static bool has_word(const char *text, const char *word, size_t length) {
    for (const char *at = text; (at = memmem(at, strlen(at), word, length)); at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            return true;
    return false;
}

/* Names are separated by "; " and end with '}'. */
static bool is_named(const char *entry, const char *source) {
    const char *name = strstr(entry, names_field) + strlen(names_field);
    for (;;) {
        const size_t length = strcspn(name, ";}");
        if (has_word(source, name, length))
            return true;
        if (name[length] == '}')
            return false;
        name += length + strspn(name + length, "; ");
    }
}

uint64_t mp_works_named(const char *source) {
    uint64_t works = 0;
    int number = 0;
    for (const char *entry = mp_works_bibliography; entry; entry = next(entry), number++)
        if (is_named(entry, source))
            works |= UINT64_C(1) << number;
    return works;
}

void mp_works_print_keys(uint64_t works, FILE *out) {
    const char *before = "";
    for (const char *entry = mp_works_bibliography; entry; entry = next(entry), works >>= 1) {
        const char *key = strchr(entry, '{') + 1;
        if (!(works & 1))
            continue;
        fprintf(out, "%s%.*s", before, (int)strcspn(key, ","), key);
        before = ", ";
    }
}

void mp_works_print(uint64_t works, FILE *out) {
    for (const char *entry = mp_works_bibliography; entry; entry = next(entry), works >>= 1) {
        if (!(works & 1))
            continue;
        const char *names = strstr(entry, names_field), *rest = strchr(names, '\n') + 1;
        fprintf(out, "\n%.*s%.*s}\n", (int)(names - entry), entry,
                (int)(strstr(rest, "\n}") + 1 - rest), rest);
    }
}
