/* Option tables: checked once, set from text. */
#include "reference/base/option.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/option_choice.h"

/* Size of the field that a type needs. */
static size_t field_size(enum mp_option_type type) {
    /* What is inside says its own size. */
    static const size_t sizes[MP_OPTION_ITSELF + 1] = {
        [MP_OPTION_INT] = sizeof(int),
        [MP_OPTION_INT64] = sizeof(int64_t),
        [MP_OPTION_DOUBLE] = sizeof(double),
        [MP_OPTION_BOOL] = sizeof(bool),
        [MP_OPTION_COUNT] = sizeof(int),
        [MP_OPTION_CHOICE] = sizeof(int),
        [MP_OPTION_WORD] = sizeof(int),
        [MP_OPTION_TEXT] = MP_TEXT_SIZE,
        [MP_OPTION_STRING] = sizeof(char *),
        [MP_OPTION_NODE] = sizeof(struct mp_yaml *),
        [MP_OPTION_LINE] = sizeof(int),
        [MP_OPTION_KEY] = sizeof(char *),
        [MP_OPTION_ITSELF] = sizeof(struct mp_yaml *),
    };
    return type <= MP_OPTION_ITSELF ? sizes[type] : 0;
}

const struct mp_option *mp_options_find(const struct mp_option table[], const char *name) {
    for (const struct mp_option *option = table; option && option->name; option++)
        if (strcmp(option->name, name) == 0)
            return option;
    return NULL;
}

/* What came of reading a value. */
enum reading { READ, NOT_READABLE, OUTSIDE };

static enum reading read_integer(const struct mp_option *option, const char *text, int64_t *value) {
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)text[0]))
        return NOT_READABLE;
    double minimum = option->minimum;
    if (mp_option_kind(option) == MP_OPTION_COUNT && minimum < 0)
        minimum = 0; /* below 0 says that "auto" is a word of this option */
    if (errno == ERANGE || (double)number < minimum || (double)number > option->maximum)
        return OUTSIDE;
    *value = number;
    return READ;
}

static enum reading read_double(const struct mp_option *option, const char *text, double *value) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)text[0]) || isnan(number))
        return NOT_READABLE;
    if (isinf(number) || number < option->minimum || number > option->maximum)
        return OUTSIDE;
    *value = number;
    return READ;
}

static enum reading read_bool(const char *text, bool *value) {
    static const char *const word[] = {"no", "yes", "false", "true", "off", "on"};
    for (int index = 0; index < 6; index++) {
        if (strcmp(text, word[index]) == 0) {
            *value = index % 2;
            return READ;
        }
    }
    return NOT_READABLE;
}

static enum reading read_count(const struct mp_option *option, const char *text, int *value) {
    int64_t number;
    if (strcmp(text, "all") == 0) {
        *value = MP_ALL;
        return READ;
    }
    if (strcmp(text, "auto") == 0 && option->minimum <= -1) {
        *value = MP_AUTO;
        return READ;
    }
    enum reading reading = read_integer(option, text, &number);
    if (reading == READ)
        *value = (int)number;
    return reading;
}

static enum reading read_value(const struct mp_option *option, const char *text, void *field) {
    int64_t number;
    enum reading reading;

    switch (mp_option_kind(option)) {
    case MP_OPTION_INT:
        reading = read_integer(option, text, &number);
        if (reading == READ)
            *(int *)field = (int)number;
        return reading;
    case MP_OPTION_INT64:
        return read_integer(option, text, field);
    case MP_OPTION_DOUBLE:
        return read_double(option, text, field);
    case MP_OPTION_BOOL:
        return read_bool(text, field);
    case MP_OPTION_COUNT:
        return read_count(option, text, field);
    case MP_OPTION_CHOICE:
    case MP_OPTION_WORD: {
        int index = option_word_index(option, text);
        if (index < 0)
            return NOT_READABLE;
        *(int *)field = index;
        return READ;
    }
    case MP_OPTION_TEXT:
        if (strlen(text) >= MP_TEXT_SIZE)
            return OUTSIDE;
        memcpy(field, text, strlen(text) + 1);
        return READ;
    case MP_OPTION_STRING:
        *(const char **)field = text;
        if (option->maximum > 0 && strlen(text) > option->maximum)
            return OUTSIDE;
        return *text || option->maximum > 0 ? READ : NOT_READABLE;
    default:
        return NOT_READABLE;
    }
}

/* The sentence for a value that `option` does not take; `place` is "suite.yaml:14: " or "". */
static int fail_value(const struct mp_option *option, const char *text, enum reading reading,
                      const char *place, struct mp_error *error) {
    char right[512];

    mp_options_describe(option, right, sizeof right);
    if (mp_option_kind(option) == MP_OPTION_STRING)
        return mp_fail(error, MP_EINVAL, "%s%s: should be %s", place, option->name, right);
    if (mp_option_kind(option) == MP_OPTION_TEXT)
        return mp_fail(error, MP_EINVAL, "%s%s: %zu characters are too many, it takes %s", place,
                       option->name, strlen(text), right);
    if (reading == OUTSIDE) {
        static const char number[] = "a number ";
        const char *range = right;
        if (strncmp(right, number, sizeof number - 1) == 0)
            range += sizeof number - 1;
        return mp_fail(error, MP_EINVAL, "%s%s: %.80s is outside %s", place, option->name, text,
                       range);
    }
    return mp_fail(error, MP_EINVAL, "%s%s: \"%.80s\" is not %s", place, option->name, text, right);
}

int mp_option_set(const struct mp_option *row, void *options, const char *text, const char *where,
                  struct mp_error *error) {
    char place[320] = "";
    enum reading reading = read_value(row, text, (char *)options + row->offset);
    if (where)
        snprintf(place, sizeof place, "%.300s: ", where);
    return reading == READ ? MP_OK : fail_value(row, text, reading, place, error);
}

int mp_options_set(const struct mp_option table[], void *options, const char *owner,
                   const char *name, const char *text, const char *where, struct mp_error *error) {
    const struct mp_option *row = mp_options_find(table, name);
    const struct mp_option_group alone[] = {{"", table, options, owner}, {0}};
    return row ? mp_option_set(row, options, text, where, error)
               : option_fail_unknown(alone, "", name, where, error);
}

/* What a file may leave out has a default that says nothing; the field is NULL of a string then. */
static enum reading read_default(const struct mp_option *option, void *field) {
    const char *text = option->default_value;
    if (!text || mp_option_kind(option) >= MP_OPTION_NODE)
        return READ;
    if (*text || mp_option_kind(option) == MP_OPTION_TEXT)
        return read_value(option, text, field);
    if (mp_option_kind(option) == MP_OPTION_DOUBLE)
        *(double *)field = NAN;
    else if (mp_option_kind(option) == MP_OPTION_CHOICE || mp_option_kind(option) == MP_OPTION_WORD)
        *(int *)field = -1;
    else if (mp_option_kind(option) != MP_OPTION_STRING)
        return NOT_READABLE;
    return READ;
}

int mp_options_set_defaults(const struct mp_option table[], void *options, struct mp_error *error) {
    for (const struct mp_option *option = table; option && option->name; option++) {
        void *field = (char *)options + option->offset;
        memset(field, 0, field_size(mp_option_kind(option)));
        enum reading reading = read_default(option, field);
        if (reading != READ)
            return fail_value(option, option->default_value, reading, "default of ", error);
    }
    return MP_OK;
}

static bool well_formed(const char *name) {
    if (!islower((unsigned char)name[0]))
        return false;
    for (const char *letter = name; *letter; letter++) {
        bool hyphen = *letter == '-';
        if (!hyphen && !islower((unsigned char)*letter) && !isdigit((unsigned char)*letter))
            return false;
        if (hyphen && (letter[1] == '-' || !letter[1]))
            return false;
    }
    return true;
}

/* What is wrong with what a row's values are, or NULL. */
static const char *value_fault(const struct mp_option *option) {
    bool counts =
        mp_option_kind(option) == MP_OPTION_INT || mp_option_kind(option) == MP_OPTION_COUNT;
    const struct mp_option_form *form = option->of;

    if (!(option->minimum <= option->maximum))
        return "the minimum is above the maximum";
    if (counts && (option->minimum < INT_MIN || option->maximum > INT_MAX))
        return "the range is wider than the field";
    if (mp_option_kind(option) == MP_OPTION_COUNT && option->maximum < 0)
        return "the range leaves no number";
    if (mp_option_kind(option) == MP_OPTION_CHOICE || mp_option_kind(option) == MP_OPTION_WORD)
        return option_word_fault(option);
    if (mp_option_kind(option) < MP_OPTION_FORM || mp_option_kind(option) > MP_OPTION_NAMED)
        return option->of && mp_option_kind(option) != MP_OPTION_TEXT &&
                       mp_option_kind(option) != MP_OPTION_NODE
                   ? "only a choice has words"
                   : NULL;
    return form && form->what &&
                   (mp_option_kind(option) == MP_OPTION_FORM ? form->read != NULL
                                                             : form->rows != NULL)
               ? NULL
               : "it does not say what is inside";
}

/* What is wrong with a row by itself, or NULL. */
static const char *row_fault(const struct mp_option *option, size_t options_size) {
    size_t size = field_size(mp_option_kind(option));
    bool is_named = *option->name && mp_option_kind(option) < MP_OPTION_LINE;

    if (size == 0 &&
        (mp_option_kind(option) < MP_OPTION_FORM || mp_option_kind(option) > MP_OPTION_NAMED))
        return "the type is unknown";
    if (is_named ? !well_formed(option->name) : *option->name != '\0')
        return "the name is not lower-case words joined by hyphens";
    if (option->offset > options_size || size > options_size - option->offset)
        return "the field lies outside the options struct";
    if (size && mp_option_kind(option) != MP_OPTION_TEXT && option->offset % size)
        return "the field is not aligned for its type";
    if (is_named && !option->unit)
        return "the unit is missing (\"\" for none)";
    if (is_named && (!option->help || !option->help[0]))
        return "the help is empty";
    if (is_named && option->help[strlen(option->help) - 1] == '.')
        return "the help ends with a full stop";
    return value_fault(option);
}

int mp_options_check(const struct mp_option table[], size_t options_size, const char *owner,
                     struct mp_error *error) {
    union {
        int64_t integer;
        double number;
        const char *string;
        char text[MP_TEXT_SIZE];
    } value;

    for (const struct mp_option *option = table; option && option->name; option++) {
        const char *fault = row_fault(option, options_size);
        const struct mp_option_form *form = option->of;
        if (!fault && *option->name && mp_options_find(table, option->name) != option)
            fault = "the name is there twice";
        if (!fault && option - table >= MP_OPTION_ROWS)
            fault = "the table has more than 128 rows";
        if (fault)
            return mp_fail(error, MP_EINVAL, "option \"%s\" of %s: %s", option->name, owner, fault);
        if (mp_option_kind(option) >= MP_OPTION_MAPPING &&
            mp_option_kind(option) <= MP_OPTION_NAMED &&
            mp_options_check(form->rows, form->size, form->what, error))
            return MP_EINVAL;
        enum reading reading = read_default(option, &value);
        if (reading != READ) {
            fail_value(option, option->default_value, reading, "default of ", error);
            return mp_error_prefix(error, "options of %s", owner);
        }
    }
    return MP_OK;
}
