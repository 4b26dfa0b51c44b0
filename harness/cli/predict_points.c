#include "harness/cli/predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_job.h"
#include "harness/workload/named.h"
#include "reference/base/characters.h"

/* ---- axes ---- */

static int check_key(const char *key, struct mp_error *error) {
    static const char *const others[] = {"options.", "name", "system", "change"};
    for (size_t i = 0; i < MP_LENGTH(others); i++)
        if (!strncmp(key, others[i], strlen(others[i])))
            return mp_fail(error, MP_EINVAL,
                           "--vary %.80s: only a job's own options (moeperf show job), those of "
                           "predictions (predict.KEY), loads, cluster, nodes and "
                           "levels.NAME.bandwidth or .latency can be varied; "
                           "systems with other options by --system NAME:OPTION=VALUE",
                           key);
    return strcmp(key, "nodes") != 0 ? mp_predict_job_check_setting("--vary", key, error) : MP_OK;
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

/* Whether what was said can be drawn. */
static int check_axes(const struct cli_axes *axes, struct mp_error *error) {
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

int cli_axes_index(const struct cli_axes *axes, int number, int axis) {
    for (int a = axes->count - 1; a > axis; a--)
        number /= axes->axis[a].count;
    return number % axes->axis[axis].count;
}

const char *cli_axes_value(const struct cli_axes *axes, int number, int axis) {
    return axes->axis[axis].value[cli_axes_index(axes, number, axis)];
}

const char *cli_axes_name(const struct cli_axes *axes, int number, char *text, size_t size) {
    *text = '\0';
    for (int a = 0; a < axes->count; a++)
        mp_text_add(text, size, "", " %s=%s", axes->axis[a].key, cli_axes_value(axes, number, a));
    return text;
}

/* The point's values as settings of a job; words of the cluster are added to `change` (NULL: there
 * are no others). */
struct axis_words {
    char text[CLI_AXES][MP_TEXT_SIZE + CLI_AXIS_TEXT];
    int count;
};

static void write_words(const struct cli_axes *axes, int number, const char *change,
                        struct axis_words *words) {
    enum { SIZE = sizeof words->text[0] };
    int changes = -1; /* which of them is the cluster's */
    words->count = 0;
    for (int a = 0; a < axes->count; a++) {
        const char *key = axes->axis[a].key, *value = cli_axes_value(axes, number, a);
        if (strcmp(key, "nodes") != 0 && strncmp(key, "levels.", 7) != 0) { /* not the cluster's */
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
}

/* ---- points ---- */

/* Those that people compare first: the reference, one that copies after the gate, one that moves,
 * one that does so on past loads and drops, FSSDP, and our own. */
static const char *const usual_systems[] = {"ep",   "fastermoe", "smartmoe", "swiftmoe",
                                            "llep", "fssdp",     "nodewise"};
enum { USUAL = MP_LENGTH(usual_systems) };

static const char SUITE[] = "predict"; /* what the database calls it */
static const char OPTIONS[] = "options.";

/* What a command line without a suite says. */
struct command_line {
    const struct mp_systems *systems;
    const struct cli_settings *settings;
    const struct cli_axes *axes;
    char **cell; /* [cli_axes_points] the lines of a job there, owned; NULL: there is none */
};

/* ---- jobs as text ---- */

/* The last value that a key is set to; NULL: it is not. */
static const char *setting_of(const struct cli_settings *settings, const char *key) {
    size_t length = strlen(key);
    for (int i = settings->count - 1; i >= 0; i--)
        if (!strncmp(settings->item[i], key, length) && settings->item[i][length] == '=')
            return settings->item[i] + length + 1;
    return NULL;
}

/* Whether a line of a job is its name's or its system's, or one of an option of its system, in the
 * group of which *inside says where the line before was. */
static bool is_of_system(const char *line, bool *inside) {
    *inside = *inside ? *line == ' ' : !strcmp(line, "options:");
    return *inside || !strncmp(line, "name:", 5) || !strncmp(line, "system:", 7);
}

/* The job as lines of a suite's job, but for its name and system. */
static int write_job(const struct mp_predict_job *job, char **text, struct mp_error *error) {
    char *all, *rest, *line;
    size_t size = 0;
    MP_TRY(mp_predict_job_text(job, true, &all, error));
    FILE *stream = open_memstream(text, &size);
    bool inside = false;
    for (rest = all; stream && (line = strsep(&rest, "\n"));)
        if (*line && !is_of_system(line, &inside))
            fprintf(stream, "    %s\n", line);
    free(all);
    return stream && !fclose(stream) ? MP_OK : mp_no_memory(error);
}

/* Passes a fault on: one of --set is of --vary, if only that names the key. */
static int blame(const struct command_line *line, const struct mp_error *own,
                 struct mp_error *error) {
    static const char set[] = "--set: ", unknown[] = "unknown option \"", group[] = "predict.";
    const char *text = own->text + strlen(set), *named = text;
    bool is_varied = false;
    named += strncmp(text, unknown, strlen(unknown)) ? 0 : strlen(unknown);
    for (int a = 0; a < line->axes->count && !strncmp(own->text, set, strlen(set)); a++) {
        const char *key = line->axes->axis[a].key;
        const bool is_set = setting_of(line->settings, key);
        key += strncmp(key, group, strlen(group)) ? 0 : strlen(group);
        const size_t length = strlen(key);
        is_varied |= !strncmp(named, key, length) && strchr(":\"", named[length]) && !is_set;
    }
    return mp_fail(error, own->code, "%s%s", is_varied ? "--vary: " : "",
                   is_varied ? text : own->text);
}

/* Of a generator 30 iterations, unless told otherwise; of a trace as many as it has, up to 100. */
static int write_cell(const struct command_line *line, int number, char **text,
                      struct mp_error *error) {
    MP_AUTO(predict_job) struct mp_predict_job job = {0};
    struct axis_words words;
    struct mp_error own = {0};
    struct cli_settings all = {.item = {"iterations=30"}, .count = 1};
    for (int i = 0; i < line->settings->count; i++)
        all.item[all.count++] = line->settings->item[i];
    write_words(line->axes, number, setting_of(line->settings, "change"), &words);
    for (int i = 0; i < words.count; i++)
        all.item[all.count++] = words.text[i];
    const char *loads = setting_of(&all, "loads");
    if (!loads || !mp_trace_names_generator(loads))
        memmove(all.item, all.item + 1, (size_t)--all.count * sizeof *all.item);
    MP_TRY(mp_predict_job_create(&job, error));
    if (cli_prepare_job(line->systems, &all, &job, &own))
        return blame(line, &own, error);
    return write_job(&job, text, error);
}

/* "fssdp:window=2,overlap=4" with its point's job as an entry of a suite's jobs. */
static int write_point(const struct command_line *line, const struct cli_point *point, FILE *stream,
                       struct mp_error *error) {
    struct cli_system_words words;
    char name[MP_TEXT_SIZE], values[MP_TEXT_SIZE];
    MP_TRY(cli_system_words_parse(line->systems, point->system, &words, error));
    snprintf(name, sizeof name, "%.2000s%.2000s", point->system,
             cli_axes_name(line->axes, point->number, values, sizeof values));
    fputs("  - name: ", stream);
    int code = mp_yaml_write_text(stream, name, error);
    fprintf(stream, "\n%s    system: %s\n%s", line->cell[point->number], words.system->name,
            words.options ? "    options:\n" : "");
    for (int i = 0; i < words.options && !code; i++) {
        fputs("      ", stream);
        code = mp_yaml_write_text(stream, words.option[i][0], error);
        fputs(": ", stream);
        if (!code)
            code = mp_yaml_write_text(stream, words.option[i][1], error);
        fputc('\n', stream);
    }
    return code;
}

/* The suite of these points as text; free it. */
static int write_suite(const struct command_line *line, const struct cli_point points[], int count,
                       char **text, struct mp_error *error) {
    size_t size = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &size);
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "no memory for a suite");
    fprintf(stream, "suite: %s\njobs:\n", SUITE);
    int code = MP_OK;
    for (int i = 0; i < count && !code; i++)
        code = write_point(line, &points[i], stream, error);
    if (fclose(stream) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for a suite");
    return code;
}

/* Reads the suite of these points, with its errors in the words of the command line. */
static int read_points(const struct command_line *line, const struct cli_settings *options,
                       const struct cli_point points[], int count, struct mp_suite *suite,
                       struct mp_error *error) {
    static const char name[] = "command line";
    const struct mp_suite_changes changes = {options->item, options->count, NULL, true};
    struct mp_error first = {0};
    MP_AUTO(text) char *text = NULL;
    MP_TRY(write_suite(line, points, count, &text, error));
    const int code = mp_suite_parse(name, text, line->systems, &changes, suite, &first);
    /* Without the place in a file that nobody has written. */
    const char *place =
        strncmp(first.text, name, sizeof name - 1) ? NULL : strstr(first.text, ": ");
    return code ? mp_fail(error, code, "%s", place ? place + 2 : first.text) : MP_OK;
}

/* ---- which jobs there are ---- */

/* The systems that were asked for, and ep in front; or the usual ones. */
struct chosen {
    const char *name[CLI_WORDS_LIMIT + 1];
    int count, asked; /* the last `asked` were named by the user */
};

static void choose_systems(const struct cli_words *wanted, struct chosen *chosen) {
    bool has_ep = false;
    for (int i = 0; i < wanted->count; i++)
        has_ep |= !strcmp(wanted->word[i], "ep");
    if (wanted->count > 0 && !has_ep)
        chosen->name[chosen->count++] = "ep";
    for (int i = 0; i < wanted->count; i++)
        chosen->name[chosen->count++] = wanted->word[i];
    chosen->asked = wanted->count;
    for (int i = 0; i < USUAL && !wanted->count; i++)
        chosen->name[chosen->count++] = usual_systems[i];
}

/* The options of --set; of those of a system only what it has: another one may have the others.
 * All else that is set is in the job. */
static void select_options(const struct mp_systems *systems, const char *name,
                           const struct cli_settings *settings, struct cli_settings *own) {
    const struct mp_system *system = name ? mp_systems_find(systems, name, NULL) : NULL;
    own->count = 0;
    for (int i = 0; i < settings->count; i++) {
        const char *item = settings->item[i], *dot = item + sizeof OPTIONS - 1;
        char key[128];
        if (strncmp(item, OPTIONS, sizeof OPTIONS - 1) != 0)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)strcspn(dot, "="), dot);
        if (!name || (system && system->options && mp_options_find(system->options, key)))
            own->item[own->count++] = item;
    }
}

/* Whether this point alone can be predicted; MP_EREFUSED: not by its system. */
static int try_point(const struct command_line *line, const struct cli_point *point,
                     struct mp_error *error) {
    MP_AUTO(suite) struct mp_suite suite = {0};
    struct cli_settings options;
    select_options(line->systems, point->system, line->settings, &options);
    return read_points(line, &options, point, 1, &suite, error);
}

/* A sentence, unless its reason, behind the point's or job's name, is there. */
static void add_left_out(struct cli_points *points, const char *why) {
    const char *reason = strstr(why, ": ");
    if (!strstr(points->left_out, reason ? reason : why))
        mp_text_add(points->left_out, sizeof points->left_out, "  ", "Left out: %s.", why);
}

/* What became of the points of one system or more. */
struct tried {
    int possible, refused;
    struct mp_error why; /* the first that is not possible */
};

/* The points of a system: those that it refuses are there with the others; where the job itself is
 * wrong, the point is left out. */
static void add_points(const struct command_line *line, const char *system,
                       struct cli_points *points, struct tried *tried) {
    int count = cli_axes_points(line->axes);
    for (int p = 0; p < count; p++) {
        struct cli_point *point = &points->item[points->count];
        struct mp_error own = {0};
        if (!line->cell[p])
            continue;
        *point = (struct cli_point){system, p};
        int code = try_point(line, point, &own);
        tried->possible += code == MP_OK;
        tried->refused += code == MP_EREFUSED;
        points->count += code == MP_OK || code == MP_EREFUSED;
        tried->why = tried->why.code ? tried->why : own;
        if (code && code != MP_EREFUSED)
            add_left_out(points, own.text);
    }
}

static int choose_points(const struct command_line *line, const struct cli_words *asked,
                         struct cli_points *points, struct mp_error *error) {
    struct chosen chosen = {0};
    struct tried wanted = {0};
    choose_systems(asked, &chosen);
    for (int i = 0; i < chosen.count; i++)
        if (MP_ANY(before, i, !strcmp(chosen.name[before], chosen.name[i])))
            return mp_fail(error, MP_EINVAL, "--system %.100s: given twice", chosen.name[i]);
    MP_TRY(MP_NEW(points->item, (size_t)(chosen.count * cli_axes_points(line->axes) + 1), error));
    for (int i = 0; i < chosen.count; i++) {
        struct tried own = {0};
        bool is_wanted = !chosen.asked || i >= chosen.count - chosen.asked;
        add_points(line, chosen.name[i], points, &own);
        if (chosen.asked && is_wanted && !own.possible && !own.refused)
            return mp_fail(error, own.why.code, "%s", own.why.text);
        wanted.possible += is_wanted ? own.possible : 0;
        wanted.why = is_wanted && !wanted.why.code ? own.why : wanted.why;
    }
    return wanted.possible ? MP_OK : mp_fail(error, wanted.why.code, "%s", wanted.why.text);
}

/* What all systems get at every point.  An error only where there is nothing at any of them. */
static int write_cells(struct command_line *line, struct cli_points *points,
                       struct mp_error *error) {
    int count = cli_axes_points(line->axes), written = 0;
    char values[MP_TEXT_SIZE];
    struct mp_error first = {0};
    MP_TRY(MP_NEW(line->cell, count, error));
    for (int p = 0; p < count; p++) {
        struct mp_error own = {0};
        int code = write_cell(line, p, &line->cell[p], &own);
        written += !code;
        first = first.code ? first : own;
        if (code) {
            mp_error_prefix(&own, "%s", cli_axes_name(line->axes, p, values, sizeof values) + 1);
            add_left_out(points, own.text);
        }
    }
    return written ? MP_OK : mp_fail(error, first.code, "%s", first.text);
}

int cli_points_read(const struct mp_systems *systems, const struct cli_words *wanted,
                    const struct cli_settings *settings, struct cli_points *points,
                    struct mp_suite *suite, struct mp_error *error) {
    struct cli_settings options;
    struct command_line line = {systems, settings, points->axes, NULL};
    int code = check_axes(line.axes, error);
    if (!code)
        code = write_cells(&line, points, error);
    if (!code)
        code = choose_points(&line, wanted, points, error);
    select_options(systems, NULL, settings, &options);
    if (!code)
        code = read_points(&line, &options, points->item, points->count, suite, error);
    for (int p = 0; line.cell && p < cli_axes_points(line.axes); p++)
        free(line.cell[p]);
    free(line.cell);
    return code;
}
