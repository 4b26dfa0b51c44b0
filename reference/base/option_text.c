/* Options as text: their values, and what they accept. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/option.h"
#include "reference/base/option_choice.h"

struct number {
    char text[32];
};

/* The shortest form that is read back as the same number. */
static struct number format_double(double value) {
    struct number number;

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number.text, sizeof number.text, "%.*g", digits, value);
        if (strtod(number.text, NULL) == value)
            break;
    }
    return number;
}

const char *mp_options_format(const struct mp_option *option, const void *options, char *buffer,
                              size_t size) {
    const void *field = (const char *)options + option->offset;
    char word[MP_CHOICE_SIZE] = "";

    switch (mp_option_kind(option)) {
    case MP_OPTION_INT64:
        snprintf(buffer, size, "%lld", (long long)*(const int64_t *)field);
        break;
    case MP_OPTION_DOUBLE:
        snprintf(buffer, size, "%s",
                 isnan(*(const double *)field) ? "" : format_double(*(const double *)field).text);
        break;
    case MP_OPTION_BOOL:
        snprintf(buffer, size, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case MP_OPTION_CHOICE:
    case MP_OPTION_WORD:
        if (*(const int *)field >= 0)
            option_word(option, *(const int *)field, word);
        snprintf(buffer, size, "%s", word);
        break;
    case MP_OPTION_TEXT:
        snprintf(buffer, size, "%s", (const char *)field);
        break;
    case MP_OPTION_INT:
    case MP_OPTION_COUNT: {
        int value = *(const int *)field;
        if (mp_option_kind(option) == MP_OPTION_COUNT && (value == MP_ALL || value == MP_AUTO))
            snprintf(buffer, size, "%s", value == MP_ALL ? "all" : "auto");
        else
            snprintf(buffer, size, "%d", value);
        break;
    }
    default: /* what stands in files only */
        buffer[0] = '\0';
    }
    return buffer;
}

/* "one of flat, hierarchical" */
static void describe_choice(const struct mp_option *option, char *buffer, size_t size) {
    char word[MP_CHOICE_SIZE];
    size_t length = (size_t)snprintf(buffer, size, "one of");

    for (int index = 0; length < size && option_word(option, index, word); index++)
        length += (size_t)snprintf(buffer + length, size - length, "%s %s", index ? "," : "", word);
}

static void describe_number(const struct mp_option *option, char *buffer, size_t size) {
    bool is_count = mp_option_kind(option) == MP_OPTION_COUNT;
    struct number minimum = format_double(is_count && option->minimum < 0 ? 0 : option->minimum);
    struct number maximum = format_double(option->maximum);
    const char *unit = option->unit ? option->unit : "";
    const char *words = "";

    if (is_count)
        words = option->minimum <= -1 ? ", all or auto" : " or all";
    snprintf(buffer, size, "a number %s .. %s%s%s%s", minimum.text, maximum.text,
             unit[0] ? " " : "", unit, words);
}

const struct mp_option *mp_options_inside(const struct mp_option *option) {
    const struct mp_option_form *form = option->of;
    bool has_form =
        mp_option_kind(option) >= MP_OPTION_NODE && mp_option_kind(option) <= MP_OPTION_NAMED;
    return has_form && form ? form->rows : NULL;
}

/* "a mapping: description, rules, iteration-ends" */
static void describe_keys(const struct mp_option rows[], char *buffer, size_t size) {
    size_t length = (size_t)snprintf(buffer, size, "a mapping");
    const char *before = ": ";
    for (; rows->name && length < size; rows++)
        if (*rows->name) {
            length += (size_t)snprintf(buffer + length, size - length, "%s%s", before, rows->name);
            before = ", ";
        }
}

static void describe_many(const struct mp_option *option, char *buffer, size_t size) {
    const struct mp_option_form *form = option->of;
    const char *many =
        mp_option_kind(option) == MP_OPTION_NAMED ? "a mapping of names to" : "a list of";
    snprintf(buffer, size, "%s %g to %g%s%s", many, option->minimum, option->maximum,
             form ? ", each " : " values", form ? form->what : "");
}

const char *mp_options_describe(const struct mp_option *option, char *buffer, size_t size) {
    const struct mp_option_form *form = option->of;
    switch (mp_option_kind(option)) {
    case MP_OPTION_BOOL:
        snprintf(buffer, size, "yes or no");
        break;
    case MP_OPTION_CHOICE:
    case MP_OPTION_WORD:
        describe_choice(option, buffer, size);
        break;
    case MP_OPTION_TEXT:
        snprintf(buffer, size, "a text of at most %d characters", MP_TEXT_SIZE - 1);
        break;
    case MP_OPTION_INT:
    case MP_OPTION_INT64:
    case MP_OPTION_DOUBLE:
    case MP_OPTION_COUNT:
        describe_number(option, buffer, size);
        break;
    case MP_OPTION_STRING:
        if (option->maximum > 0)
            snprintf(buffer, size, "a text of at most %.0f bytes", option->maximum);
        else
            snprintf(buffer, size, "some text");
        break;
    case MP_OPTION_FORM:
        if (option->maximum > option->minimum)
            describe_number(option, buffer, size);
        else
            snprintf(buffer, size, "%s", form->what);
        break;
    case MP_OPTION_MAPPING:
        describe_keys(form->rows, buffer, size);
        break;
    case MP_OPTION_NODE:
        if (option->maximum < 1) {
            snprintf(buffer, size, "a value");
            break;
        } /* fall through */
    case MP_OPTION_LIST:
    case MP_OPTION_NAMED:
        describe_many(option, buffer, size);
        break;
    case MP_OPTION_LINE:
    case MP_OPTION_KEY:
    case MP_OPTION_ITSELF:
        buffer[0] = '\0';
    }
    return buffer;
}

const char *mp_options_line(const struct mp_option table[], const void *options, char *line,
                            size_t size) {
    char value[MP_TEXT_SIZE];
    size_t at = 0;

    line[0] = '\0';
    for (const struct mp_option *option = table; option && option->name && at < size; option++)
        at += (size_t)snprintf(line + at, size - at, "%s%s=%s", at ? " " : "", option->name,
                               mp_options_format(option, options, value, sizeof value));
    return line;
}

int mp_options_read_line(const char *line, const char *owner, mp_option_setter *set, void *context,
                         struct mp_error *error) {
    static const char blanks[] = " \t\r\n";
    MP_AUTO(arena) struct mp_arena memory = {0};
    char *words = mp_arena_text(&memory, line), *rest = NULL;
    if (!words)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its options", owner);
    for (char *word = strtok_r(words, blanks, &rest); word; word = strtok_r(NULL, blanks, &rest)) {
        char *equals = strchr(word, '=');
        if (!equals || equals == word)
            return mp_fail(error, MP_EINVAL, "%s: \"%.100s\" should be option=value", owner, word);
        *equals = '\0';
        MP_TRY(set(context, word, equals + 1, error));
    }
    return MP_OK;
}
