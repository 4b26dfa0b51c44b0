/* Axes of predictions: see predict_axes.h. */
#include "harness/cli/predict_axes.h"

#include <stdio.h>
#include <string.h>

/* Keys of a mapping of their own would need more than a line of the job. */
static int check_key(const char *key, struct mp_error *error) {
    static const char *const others[] = {"options.", "predict.", "name", "system", "change"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(key, others[i], strlen(others[i])))
            return mp_fail(error, MP_EINVAL,
                           "--vary %.80s: only a job's own options (moeperf show job), loads, "
                           "cluster, nodes and levels.NAME.bandwidth or .latency can be varied; "
                           "systems with other options by --system NAME:OPTION=VALUE",
                           key);
    return MP_OK;
}

int cli_axes_add(struct cli_axes *axes, const char *text, struct mp_error *error) {
    if (axes->count == CLI_AXES)
        return mp_fail(error, MP_EINVAL, "--vary: at most %d keys are varied", CLI_AXES);
    if (!strchr(text, '=') || strlen(text) >= CLI_AXIS_TEXT)
        return mp_fail(error, MP_EINVAL, "--vary %.80s: should be KEY=VALUE,VALUE...", text);
    struct cli_axis *axis = &axes->axis[axes->count];
    char *rest = axis->text;
    snprintf(axis->text, sizeof axis->text, "%s", text);
    axis->key = strsep(&rest, "=");
    for (axis->count = 0; rest; axis->count++) {
        if (axis->count == CLI_AXIS_VALUES)
            return mp_fail(error, MP_EINVAL, "--vary %.80s: more than %d values", axis->key,
                           CLI_AXIS_VALUES);
        axis->value[axis->count] = strsep(&rest, ",");
        for (int i = 0; i <= axis->count; i++)
            if (!*axis->value[i] ||
                (i < axis->count && !strcmp(axis->value[i], axis->value[axis->count])))
                return mp_fail(error, MP_EINVAL, "--vary %.80s: %s", axis->key,
                               *axis->value[i] ? "the same value twice" : "a value is missing");
    }
    for (int a = 0; a < axes->count; a++)
        if (!strcmp(axis->key, axes->axis[a].key))
            return mp_fail(error, MP_EINVAL, "--vary %.80s: given twice", axis->key);
    axes->count++;
    return check_key(axis->key, error);
}

int cli_axes_check(const struct cli_axes *axes, struct mp_error *error) {
    const struct cli_axis *last = &axes->axis[axes->count > 1 ? axes->count - 1 : 0];
    if (axes->count > 1 && last->count > CLI_AXIS_COLUMNS)
        return mp_fail(error, MP_EINVAL,
                       "--vary %.80s: the values of the last key stand side by side, and there are "
                       "more than %d; name it before another",
                       last->key, CLI_AXIS_COLUMNS);
    return MP_OK;
}

int cli_axes_points(const struct cli_axes *axes) {
    int points = 1;
    for (int a = 0; a < axes->count; a++)
        points *= axes->axis[a].count;
    return points;
}

void cli_axes_point(const struct cli_axes *axes, int number, int at[CLI_AXES]) {
    memset(at, 0, CLI_AXES * sizeof *at);
    for (int a = axes->count - 1; a >= 0; a--) {
        at[a] = number % axes->axis[a].count;
        number /= axes->axis[a].count;
    }
}

int cli_axes_number(const struct cli_axes *axes, const int at[CLI_AXES]) {
    int number = 0;
    for (int a = 0; a < axes->count; a++)
        number = number * axes->axis[a].count + at[a];
    return number;
}

const char *cli_axes_name(const struct cli_axes *axes, const int at[], char *text, size_t size) {
    size_t length = 0;
    *text = '\0';
    for (int a = 0; a < axes->count && length < size; a++)
        length += (size_t)snprintf(text + length, size - length, " %s=%s", axes->axis[a].key,
                                   axes->axis[a].value[at[a]]);
    return text;
}

static bool is_of_cluster(const char *key) {
    return !strcmp(key, "nodes") || !strncmp(key, "levels.", 7);
}

void cli_axes_words(const struct cli_axes *axes, const int at[], const char *change,
                    struct cli_axis_words *words) {
    enum { SIZE = sizeof words->text[0] };
    int changes = -1; /* which of them is the cluster's */
    words->count = 0;
    for (int a = 0; a < axes->count; a++) {
        const char *key = axes->axis[a].key, *value = axes->axis[a].value[at[a]];
        if (!is_of_cluster(key)) {
            snprintf(words->text[words->count++], SIZE, "%s=%s", key, value);
            continue;
        }
        if (changes < 0) {
            changes = words->count++;
            snprintf(words->text[changes], SIZE, "change=%s", change ? change : "");
        }
        size_t length = strlen(words->text[changes]);
        snprintf(words->text[changes] + length, SIZE - length, "%s%s=%s",
                 words->text[changes][length - 1] == '=' ? "" : " ", key, value);
    }
    for (int i = 0; i < words->count; i++)
        words->item[i] = words->text[i];
}
