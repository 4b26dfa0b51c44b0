/* Options in files: mappings, lists and what is inside them; groups of tables. */
#include <stdarg.h>
#include <string.h>

#include "reference/base/option.h"
#include "reference/base/option_choice.h"

enum { WHERE_SIZE = 320, FEW_WORDS = 8 };

int mp_reading_fail(const struct mp_reading *reading, int line, const char *format, ...) {
    char text[sizeof reading->error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return mp_fail(reading->error, MP_EINVAL, "%.300s:%d: %s", reading->path, line, text);
}

static int fail_kind(const struct mp_reading *reading, const struct mp_option *row, int line) {
    char right[256];
    mp_options_describe(row, right, sizeof right);
    bool is_one = mp_option_kind(row) < MP_OPTION_NODE;
    return mp_reading_fail(reading, line, "%s: should be %s%s", row->name,
                           is_one ? "one value: " : "", right);
}

/* ---- unknown names ---- */

/* All names at this key, and at the top the keys of groups. */
static int known_names(const struct mp_option_group groups[], const char *key,
                       const char *known[MP_OPTION_ROWS + 1]) {
    int count = 0;
    for (const struct mp_option_group *group = groups; group->key; group++) {
        bool is_here = !strcmp(group->key, key);
        if (!is_here && !*key && count < MP_OPTION_ROWS)
            known[count++] = group->key;
        for (const struct mp_option *row = group->table; is_here && row && row->name; row++)
            if (*row->name && count < MP_OPTION_ROWS)
                known[count++] = row->name;
    }
    known[count] = NULL;
    return count;
}

/* Another group that has a row of this name: nobody meant another name. */
static const struct mp_option_group *group_with(const struct mp_option_group groups[],
                                                const char *key, const char *name) {
    for (const struct mp_option_group *group = groups; group->key; group++)
        for (const struct mp_option *row = group->table; row && row->name; row++)
            if (strcmp(group->key, key) != 0 && !strcmp(row->name, name))
                return group;
    return NULL;
}

int option_fail_unknown(const struct mp_option_group groups[], const char *key, const char *name,
                        const char *where, struct mp_error *error) {
    const char *known[MP_OPTION_ROWS + 1], *owner = "";
    char right[FEW_WORDS * 32] = "";
    int count = known_names(groups, key, known);
    for (const struct mp_option_group *group = groups; group->key; group++)
        if (!strcmp(group->key, key))
            owner = group->owner;
    struct mp_meant meant = mp_meant(name, known);
    const struct mp_option_group *other = group_with(groups, key, name);
    if (other && *other->key)
        snprintf(meant.text, sizeof meant.text, "; did you mean \"%.30s.%.40s\"?", other->key,
                 name);
    else if (other)
        snprintf(meant.text, sizeof meant.text, "; did you mean \"%.40s\" of %.30s?", name,
                 other->owner);
    size_t length = 0;
    for (int i = 0; i < count && count <= FEW_WORDS && !*meant.text && length < sizeof right; i++)
        length += (size_t)snprintf(right + length, sizeof right - length, "%s%s",
                                   i ? ", " : "; there is ", known[i]);
    return mp_fail(error, MP_EINVAL, "%.300s%sunknown option \"%.80s\" for %s%s",
                   where ? where : "", where ? ": " : "", name, owner,
                   *meant.text ? meant.text
                   : count     ? right
                               : ", which has no options");
}

/* ---- values ---- */

/* Writes a value as one text: a scalar as it is, a list joined by `separator`, rows by ';'.  False
 * for a mapping, and for lists nested or mixed beyond rows of values. */
static bool join(FILE *text, const struct mp_yaml *value, const char *separator, int depth) {
    if (value->kind == MP_YAML_SCALAR)
        return fputs(value->text, text) >= 0;
    if (value->kind == MP_YAML_MAPPING || depth == 2)
        return false;
    bool has_rows = value->count > 0 && value->item[0]->kind == MP_YAML_SEQUENCE, joins = true;
    for (int i = 0; joins && i < value->count; i++) {
        if (i > 0)
            fputs(has_rows ? ";" : separator, text);
        joins = (value->item[i]->kind == MP_YAML_SEQUENCE) == has_rows &&
                join(text, value->item[i], separator, depth + 1);
    }
    return joins;
}

static int read_joined(const struct mp_reading *reading, const struct mp_option *row, int line,
                       const struct mp_yaml *value, char text[MP_TEXT_SIZE]) {
    FILE *stream = fmemopen(text, MP_TEXT_SIZE, "w");
    if (!stream)
        return mp_no_memory(reading->error);
    bool joins = join(stream, value, row->of, 0);
    bool fits = !fflush(stream) && ftell(stream) < MP_TEXT_SIZE;
    fclose(stream);
    if (joins && fits)
        return MP_OK;
    return joins ? mp_reading_fail(reading, line, "%s: longer than %d characters", row->name,
                                   MP_TEXT_SIZE - 1)
                 : mp_reading_fail(reading, line, "%s: should be one value or a list of values",
                                   row->name);
}

static int read_one(const struct mp_reading *reading, const struct mp_option *row, int line,
                    const struct mp_yaml *value, void *options) {
    char where[WHERE_SIZE];
    if (mp_option_kind(row) == MP_OPTION_TEXT && row->of && value->kind != MP_YAML_SCALAR)
        return read_joined(reading, row, line, value, (char *)options + row->offset);
    if (value->kind != MP_YAML_SCALAR)
        return fail_kind(reading, row, line);
    snprintf(where, sizeof where, "%.300s:%d", reading->path, line);
    return mp_option_set(row, options, value->text, where, reading->error);
}

/* What the rows with no name of their own are about. */
static void fill_places(const struct mp_option table[], const char *key, int line,
                        const struct mp_yaml *mapping, void *options) {
    for (const struct mp_option *row = table; row->name; row++) {
        void *field = (char *)options + row->offset;
        if (mp_option_kind(row) == MP_OPTION_LINE)
            *(int *)field = line;
        else if (mp_option_kind(row) == MP_OPTION_KEY)
            *(const char **)field = key;
        else if (mp_option_kind(row) == MP_OPTION_ITSELF)
            *(const struct mp_yaml **)field = mapping;
    }
}

static int read_struct(const struct mp_reading *reading, const struct mp_option table[],
                       const char *owner, const char *key, int line, const struct mp_yaml *mapping,
                       void *options) {
    const struct mp_option_group alone[] = {{"", table, options, owner}, {0}};
    char right[256];
    MP_TRY(mp_options_set_defaults(table, options, reading->error));
    MP_TRY(mp_groups_apply(reading, alone, mapping));
    fill_places(table, key, line, mapping, options);
    for (const struct mp_option *row = table; row->name; row++)
        if (*row->name && !row->default_value && !mp_yaml_get(mapping, row->name))
            return mp_reading_fail(reading, mapping->line, "%s: not given; %s needs %s: %s",
                                   row->name, owner, mp_options_describe(row, right, sizeof right),
                                   row->help);
    return MP_OK;
}

/* The row of a value that is no mapping, under the list's name. */
static struct mp_option single_of(const struct mp_option rows[], const char *name) {
    struct mp_option single = {0};
    for (; rows->name; rows++)
        if (!*rows->name && mp_option_kind(rows) < MP_OPTION_LINE)
            single = *rows;
    single.name = single.name ? name : NULL;
    return single;
}

/* The items of a sequence, or of a mapping with their names. */
static int read_many(const struct mp_reading *reading, const struct mp_option *row, int line,
                     const struct mp_yaml *value, char *item) {
    const struct mp_option_form *form = row->of;
    const struct mp_option single = single_of(form->rows, row->name);
    bool is_named = mp_option_kind(row) == MP_OPTION_NAMED;
    int *count = (int *)(item + (size_t)row->maximum * form->size), code = MP_OK;
    if (value->kind != (is_named ? MP_YAML_MAPPING : MP_YAML_SEQUENCE) ||
        value->count < row->minimum || value->count > row->maximum)
        return fail_kind(reading, row, line);
    for (*count = 0; *count < value->count && !code; item += form->size) {
        const struct mp_yaml *at = value->item[*count];
        const char *key = is_named ? value->key[*count] : "";
        int place = is_named ? value->key_line[*count] : at->line;
        ++*count;
        if (!single.name) {
            code = read_struct(reading, form->rows, form->what, key, place, at, item);
            continue;
        }
        fill_places(form->rows, key, place, at, item);
        code = mp_options_read_value(reading, &single, at->line, at, item);
    }
    return code;
}

int mp_options_read_value(const struct mp_reading *reading, const struct mp_option *row, int line,
                          const struct mp_yaml *value, void *options) {
    void *field = (char *)options + row->offset;
    const struct mp_option_form *form = row->of;
    switch (mp_option_kind(row)) {
    case MP_OPTION_NODE:
        *(const struct mp_yaml **)field = value;
        return row->maximum > 0 && (value->kind != MP_YAML_SEQUENCE ||
                                    value->count < row->minimum || value->count > row->maximum)
                   ? fail_kind(reading, row, line)
                   : MP_OK;
    case MP_OPTION_FORM:
        return form->read(reading, row, value, field);
    case MP_OPTION_MAPPING:
        return value->kind == MP_YAML_MAPPING && value->count >= row->minimum
                   ? read_struct(reading, form->rows, form->what, row->name, value->line, value,
                                 field)
                   : fail_kind(reading, row, line);
    case MP_OPTION_LIST:
    case MP_OPTION_NAMED:
        return read_many(reading, row, line, value, field);
    default:
        return read_one(reading, row, line, value, options);
    }
}

int mp_options_read(const struct mp_reading *reading, const struct mp_option table[],
                    const char *owner, const struct mp_yaml *mapping, void *options) {
    return read_struct(reading, table, owner, "", mapping->line, mapping, options);
}

/* ---- groups ---- */

/* The group with this key, at the top the one that has the option; NULL: none. */
static const struct mp_option_group *find_group(const struct mp_option_group groups[],
                                                const char *key, const char *name) {
    for (const struct mp_option_group *group = groups; group->key; group++)
        if (!strcmp(group->key, key) && (*key || mp_options_find(group->table, name)))
            return group;
    return NULL;
}

static bool takes_all(const struct mp_option_group groups[], const char *key) {
    bool takes = false;
    for (const struct mp_option_group *group = groups; group->key; group++)
        for (const struct mp_option *row = group->table; row && row->name; row++)
            takes = takes || (mp_option_kind(row) == MP_OPTION_ITSELF && !strcmp(group->key, key));
    return takes;
}

static int apply(const struct mp_reading *reading, const struct mp_option_group groups[],
                 const char *key, const struct mp_yaml *mapping) {
    for (int i = 0; i < mapping->count; i++) {
        const char *name = mapping->key[i];
        const struct mp_yaml *value = mapping->item[i];
        const struct mp_option_group *group = find_group(groups, key, name);
        const struct mp_option *row = group && *name ? mp_options_find(group->table, name) : NULL;
        char where[WHERE_SIZE];
        snprintf(where, sizeof where, "%.300s:%d", reading->path, mapping->key_line[i]);
        if (row)
            MP_TRY(mp_options_read_value(reading, row, mapping->key_line[i], value, group->values));
        else if (*key || !*name || !find_group(groups, name, NULL)) {
            if (!takes_all(groups, key))
                return option_fail_unknown(groups, key, name, where, reading->error);
        } else if (value->kind == MP_YAML_MAPPING)
            MP_TRY(apply(reading, groups, name, value));
        else if (value->kind != MP_YAML_SCALAR || *value->text)
            return mp_reading_fail(reading, value->line, "%s: should be a mapping of options",
                                   name);
    }
    return MP_OK;
}

int mp_groups_apply(const struct mp_reading *reading, const struct mp_option_group groups[],
                    const struct mp_yaml *mapping) {
    if (mapping->kind != MP_YAML_MAPPING)
        return mp_reading_fail(reading, mapping->line,
                               "%s should be a mapping of options, key: value", groups->owner);
    return apply(reading, groups, "", mapping);
}

int mp_groups_set(const struct mp_option_group groups[], const char *assignment,
                  struct mp_error *error) {
    size_t length = strcspn(assignment, "=");
    char name[128];
    if (!assignment[length] || length == 0)
        return mp_fail(error, MP_EINVAL, "--set %.200s: should be key=value", assignment);
    if (length >= sizeof name)
        return mp_fail(error, MP_EINVAL, "--set: no option is called \"%.*s\"", (int)length,
                       assignment);
    snprintf(name, sizeof name, "%.*s", (int)length, assignment);
    char *dot = strchr(name, '.'), *option = name;
    const char *key = "";
    if (dot)
        *dot = '\0';
    if (dot && *name && find_group(groups, name, NULL)) {
        key = name;
        option = dot + 1;
    } else if (dot) {
        *dot = '.';
    }
    const struct mp_option_group *group = find_group(groups, key, option);
    const struct mp_option *row = group ? mp_options_find(group->table, option) : NULL;
    return row ? mp_option_set(row, group->values, assignment + length + 1, "--set", error)
               : option_fail_unknown(groups, key, option, "--set", error);
}

static int write_rows(const struct mp_option_group *group, FILE *stream, struct mp_error *error) {
    char value[MP_TEXT_SIZE];
    int code = MP_OK;
    for (const struct mp_option *row = group->table; !code && row->name; row++) {
        const char *text = mp_option_kind(row) == MP_OPTION_STRING
                               ? *(char **)((char *)group->values + row->offset)
                               : mp_options_format(row, group->values, value, sizeof value);
        if (!text || mp_option_kind(row) >= MP_OPTION_NODE)
            continue;
        fprintf(stream, "%s%s: ", *group->key ? "  " : "", row->name);
        if (mp_option_kind(row) != MP_OPTION_TEXT && mp_option_kind(row) != MP_OPTION_STRING)
            fputs(text, stream);
        else if ((code = mp_yaml_write_text(stream, text, error)))
            mp_error_prefix(error, "%s", row->name);
        fputc('\n', stream);
    }
    return code;
}

int mp_groups_write(const struct mp_option_group groups[], FILE *stream, struct mp_error *error) {
    for (const struct mp_option_group *group = groups; group->key; group++) {
        if (*group->key && group->table)
            fprintf(stream, "%s:\n", group->key);
        if (group->table)
            MP_TRY(write_rows(group, stream, error));
    }
    if (ferror(stream))
        return mp_fail_errno(error, "can't write options");
    return MP_OK;
}
