/* Published figures: see paper.h. */
#include "results/paper/paper.h"

#include <math.h>
#include <string.h>

const struct mp_paper mp_papers[] = {
    {"hecate", mp_paper_hecate},       {"swiftmoe", mp_paper_symi},
    {"fastermoe", mp_paper_fastermoe}, {"smartmoe", mp_paper_smartmoe},
    {"flexmoe", mp_paper_flexmoe},     {"laer", mp_paper_laer},
    {"hetumoe", mp_paper_hetumoe},     {"hiermoe", mp_paper_hiermoe},
    {"tutel", mp_paper_tutel},         {"tamoe", mp_paper_tamoe},
    {"moetuner", mp_paper_moetuner},   {NULL, NULL},
};

static const char *const units[] = {"speed-up", "ratio", "change", "share",     "count",
                                    "ms",       "s",     "hours",  "iterations"};
static const char *const certainties[] = {"stated", "read in code", "derived", "second-hand",
                                          "from memory"};

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

static int find_word(const char *const words[], int count, const char *word) {
    int i = 0;
    while (i < count && strcmp(words[i], word) != 0)
        i++;
    return i;
}

static bool is_identifier(const char *id) {
    size_t length = strlen(id);
    return length > 0 && length < 32 &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

/* A key's text; "" for a missing optional one. */
static int read_text(const char *name, const json_t *entry, const char *key, bool required,
                     const char **text, struct mp_error *error) {
    const json_t *value = json_object_get(entry, key);
    const char *id = json_string_value(json_object_get(entry, "id"));
    *text = json_string_value(value);
    if (*text && (**text || !required))
        return MP_OK;
    if (!value && !required) {
        *text = "";
        return MP_OK;
    }
    return mp_fail(error, MP_EFORMAT, "%s: row \"%s\": \"%s\" is no text", name, id ? id : "?",
                   key);
}

static int check_keys(const char *name, const char *id, const json_t *entry,
                      struct mp_error *error) {
    static const char *const known[] = {"id",   "what",    "unit",   "value",     "low",
                                        "high", "setting", "source", "certainty", "note"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)entry, key, value) {
        if (find_word(known, sizeof known / sizeof *known, key) ==
            (int)(sizeof known / sizeof *known))
            return mp_fail(error, MP_EFORMAT, "%s: row \"%s\": unknown key \"%s\"", name, id, key);
    }
    return MP_OK;
}

static int read_numbers(const char *name, const json_t *entry, struct mp_paper_row *row,
                        struct mp_error *error) {
    const json_t *value = json_object_get(entry, "value");
    const json_t *low = json_object_get(entry, "low"), *high = json_object_get(entry, "high");
    if (value ? low || high : !high)
        return mp_fail(error, MP_EFORMAT,
                       "%s: row \"%s\" needs either value, or high with or without low", name,
                       row->id);
    if ((value && !json_is_number(value)) || (low && !json_is_number(low)) ||
        (high && !json_is_number(high)))
        return mp_fail(error, MP_EFORMAT, "%s: row \"%s\": a figure is no number", name, row->id);
    row->high = json_number_value(value ? value : high);
    row->low = value ? row->high : low ? json_number_value(low) : -INFINITY;
    if (row->low > row->high || (low && row->low == row->high))
        return mp_fail(error, MP_EFORMAT, "%s: row \"%s\": %g .. %g is no range", name, row->id,
                       row->low, row->high);
    return MP_OK;
}

int mp_paper_row_read(const char *name, const json_t *entry, struct mp_paper_row *row,
                      struct mp_error *error) {
    const char *unit, *certainty;
    *row = (struct mp_paper_row){0};
    int code = read_text(name, entry, "id", true, &row->id, error);
    if (!code && !is_identifier(row->id))
        code = mp_fail(error, MP_EFORMAT, "%s: \"%.40s\" is no row's id: at most 31 of a-z 0-9 -",
                       name, row->id);
    if (!code)
        code = check_keys(name, row->id, entry, error);
    if (!code)
        code = read_text(name, entry, "what", true, &row->what, error);
    if (!code)
        code = read_text(name, entry, "setting", true, &row->setting, error);
    if (!code)
        code = read_text(name, entry, "source", true, &row->source, error);
    if (!code)
        code = read_text(name, entry, "note", false, &row->note, error);
    if (!code)
        code = read_text(name, entry, "unit", true, &unit, error);
    if (!code)
        code = read_text(name, entry, "certainty", true, &certainty, error);
    if (code)
        return code;
    row->unit = (enum mp_paper_unit)find_word(units, MP_PAPER_UNITS, unit);
    row->certainty =
        (enum mp_paper_certainty)find_word(certainties, MP_PAPER_CERTAINTIES, certainty);
    if (row->unit == MP_PAPER_UNITS)
        return mp_fail(error, MP_EFORMAT, "%s: row \"%s\": unknown unit \"%s\"", name, row->id,
                       unit);
    if (row->certainty == MP_PAPER_CERTAINTIES)
        return mp_fail(error, MP_EFORMAT, "%s: row \"%s\": unknown certainty \"%s\"", name, row->id,
                       certainty);
    return read_numbers(name, entry, row, error);
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
