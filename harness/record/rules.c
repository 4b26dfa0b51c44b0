#include "harness/record/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/suite/paths.h"
#include "reference/base/arena.h"
#include "reference/base/characters.h"

enum { PATTERN_LIMIT = 1000, RULES_LIMIT = 100000 };

static int read_phase(const struct mp_reading *reading, const struct mp_option *row,
                      const struct mp_yaml *value, void *phase);
static int read_value(const struct mp_reading *reading, const struct mp_option *row,
                      const struct mp_yaml *value, void *rule_value);

/* ---- matching ---- */

/* Takes a run of digits; false: there is none, or no number that fits. */
static bool take_number(const char **text, int64_t *value) {
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *value = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0;
}

static bool take_phase(const char **text, int *phase) {
    size_t length = strspn(*text, "abcdefghijklmnopqrstuvwxyz");
    *phase = (int)mp_phase_find(*text, length);
    *text += *phase < MP_PHASES ? length : 0;
    return *phase < MP_PHASES;
}

/* Matches one element of the pattern that is not a star. */
static bool take_one(const char **pattern, const char **text, struct mp_rule_capture *capture) {
    if (!strncmp(*pattern, "{layer}", 7)) {
        *pattern += 7;
        return take_number(text, &capture->layer);
    }
    if (!strncmp(*pattern, "{iteration}", 11)) {
        *pattern += 11;
        return take_number(text, &capture->iteration);
    }
    if (!strncmp(*pattern, "{phase}", 7)) {
        *pattern += 7;
        return take_phase(text, &capture->phase);
    }
    const bool any = **pattern == '?';
    if (**pattern == '\\' && (*pattern)[1])
        ++*pattern;
    if (!**text || (!any && **text != **pattern))
        return false;
    ++*pattern;
    ++*text;
    return true;
}

/* Runs are taken whole, so that between two stars there is one way to match from a given place, and
 * only the last star has to be tried again. */
bool mp_rule_match(const char *pattern, const char *text, struct mp_rule_capture *capture) {
    const char *after_star = NULL, *retry = NULL;
    *capture = (struct mp_rule_capture){-1, -1, MP_PHASES};
    for (;;) {
        if (*pattern == '*') {
            after_star = ++pattern;
            retry = text;
            continue;
        }
        if (!*pattern && !*text)
            return true;
        if (*pattern && take_one(&pattern, &text, capture))
            continue;
        if (!after_star || !*retry)
            return false;
        pattern = after_star;
        text = ++retry;
    }
}

bool mp_rule_covers(const struct mp_rule *rule, const char *name, const char *domain,
                    struct mp_rule_capture *capture) {
    struct mp_rule_capture unused;
    return (!rule->domain || mp_rule_match(rule->domain, domain, &unused)) &&
           mp_rule_match(rule->name, name, capture);
}

const struct mp_rule *mp_rules_find(const struct mp_rules *rules, const char *name,
                                    const char *domain, struct mp_rule_capture *capture) {
    return MP_FIND(rules->rule, i, rules->count,
                   mp_rule_covers(&rules->rule[i], name, domain, capture));
}

int mp_rules_end_iteration(const struct mp_rules *rules, const char *name, const char *domain) {
    struct mp_rule_capture unused;
    const int end = MP_PLACE(i, rules->ends, mp_rule_covers(&rules->end[i], name, domain, &unused));
    return end < rules->ends ? end : -1;
}

/* ---- reading ---- */

static const struct mp_option_form number = {.what = "a whole number, payload.FIELD or payload",
                                             .read = read_value};
static const struct mp_option_form counted = {
    .what = "a whole number, payload.FIELD, payload or count", .read = read_value};
static const struct mp_option_form direction = {.what = "forward, backward or payload.FIELD",
                                                .read = read_value};
static const struct mp_option_form waits = {.what = "all or payload.FIELD", .read = read_value};
static const struct mp_option_form phase = {.what = "a phase", .read = read_phase};
#define FIELD(member) offsetof(struct mp_rule, member)
#define PATTERNS                                                                                   \
    {"", MP_OPTION_LINE, .offset = FIELD(line)},                                                   \
        {"name",                                                                                   \
         MP_OPTION_STRING,                                                                         \
         FIELD(name),                                                                              \
         "bytes",                                                                                  \
         NULL,                                                                                     \
         0,                                                                                        \
         PATTERN_LIMIT,                                                                            \
         NULL,                                                                                     \
         "a pattern that the range's name has"},                                                   \
    {                                                                                              \
        "domain", MP_OPTION_STRING, FIELD(domain), "bytes", "", 0, PATTERN_LIMIT, NULL,            \
            "one that its domain has; else any"                                                    \
    }

const struct mp_option mp_rule_rows[] = {
    PATTERNS,
    {"phase", MP_OPTION_FORM, FIELD(phase), "", "", 0, 0, &phase, "which it is"},
    {"stream", MP_OPTION_CHOICE, FIELD(in_flight), "", "compute", 0, 0, "compute comm",
     "comm: an operation in flight"},
    {"direction", MP_OPTION_FORM, FIELD(direction), "", "", 0, 0, &direction, "of the pass"},
    {"iteration", MP_OPTION_FORM, FIELD(iteration), "", "", 0, 0, &counted, "it belongs to"},
    {"layer", MP_OPTION_FORM, FIELD(layer), "", "", 0, 0, &counted, "it belongs to"},
    {"tokens", MP_OPTION_FORM, FIELD(tokens), "routes", "", 0, 0, &number, "it works on"},
    {"bytes", MP_OPTION_FORM, FIELD(bytes), "B", "", 0, 0, &number, "it carries"},
    {"waits", MP_OPTION_FORM, FIELD(waits), "ns", "", 0, 0, &waits, "for other ranks"},
    {0},
};
static const struct mp_option end_rows[] = {PATTERNS, {0}};

struct said {
    const char *description;
    const struct mp_yaml *rules, *ends;
};
static const struct mp_option_form rule = {.what = "a rule"};
static const struct mp_option file_rows[] = {
    {"description", MP_OPTION_STRING, offsetof(struct said, description), "", "", 0, 0, NULL,
     "one line"},
    {"rules", MP_OPTION_NODE, offsetof(struct said, rules), "", NULL, 0, RULES_LIMIT, &rule,
     "the first that matches counts"},
    {"iteration-ends", MP_OPTION_NODE, offsetof(struct said, ends), "", "", 0, RULES_LIMIT, &rule,
     "ranges at whose ends iterations end, of programs that have none of them"},
    {0},
};

static int read_phase(const struct mp_reading *reading, const struct mp_option *row,
                      const struct mp_yaml *value, void *field) {
    const char *names[MP_PHASES + 1] = {NULL}, *text = value->text ? value->text : "";
    int *said = field;
    *said = (int)mp_phase_find(text, strlen(text));
    for (int known = 0; known < MP_PHASES; known++)
        names[known] = mp_phase_name((enum mp_phase)known);
    return *said < MP_PHASES ? MP_OK
                             : mp_reading_fail(reading, value->line, "%s: \"%.60s\" is no phase%s",
                                               row->name, text, mp_meant(text, names).text);
}

static int read_value(const struct mp_reading *reading, const struct mp_option *row,
                      const struct mp_yaml *value, void *field) {
    static const struct {
        const struct mp_option_form *form;
        const char *word;
        struct mp_rule_value value;
    } words[] = {{&direction, "forward", {MP_RULE_CONSTANT, MP_FORWARD, NULL}},
                 {&direction, "backward", {MP_RULE_CONSTANT, MP_BACKWARD, NULL}},
                 {&waits, "all", {MP_RULE_CONSTANT, INT64_MAX, NULL}},
                 {&counted, "count", {MP_RULE_COUNT, 0, NULL}}};
    const char *text = value->text ? value->text : "";
    const struct mp_option_form *form = row->of;
    struct mp_rule_value *to = field;
    if (!strncmp(text, "payload", 7) && (!text[7] || (text[7] == '.' && text[8]))) {
        *to = (struct mp_rule_value){MP_RULE_FIELD, 0, text[7] ? text + 8 : ""};
        return MP_OK;
    }
    for (size_t i = 0; i < MP_LENGTH(words); i++)
        if (words[i].form == form && !strcmp(words[i].word, text)) {
            *to = words[i].value;
            return MP_OK;
        }
    to->source = MP_RULE_CONSTANT;
    if ((form == &number || form == &counted) && mp_whole_number(text, 0, INT64_MAX, &to->constant))
        return MP_OK;
    return mp_reading_fail(reading, value->line, "%s: \"%.60s\" should be %s", row->name, text,
                           form->what);
}

static bool says_phase(const char *pattern) {
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && pattern[1])
            pattern++;
        else if (!strncmp(pattern, "{phase}", 7))
            return true;
    }
    return false;
}

static int check_rule(const struct mp_reading *reading, const struct mp_rule *said) {
    if (says_phase(said->name) != (said->phase != MP_PHASES))
        return MP_OK;
    return mp_reading_fail(reading, said->line,
                           says_phase(said->name)
                               ? "the name has {phase}, so there can't be a phase as well"
                               : "a rule needs a phase, or {phase} in its name");
}

/* Adds the items of a sequence, if there is one, to a list. */
static int read_list(const struct mp_reading *reading, const struct mp_yaml *list, bool is_end,
                     struct mp_rule **rules, int *count) {
    for (int i = 0; list && i < list->count; i++) {
        MP_TRY(MP_GROW(*rules, *count, reading->error));
        struct mp_rule *next = &(*rules)[*count];
        *next = (struct mp_rule){.phase = MP_PHASES};
        MP_TRY(mp_options_read(reading, is_end ? end_rows : mp_rule_rows,
                               is_end ? "iteration-ends" : "a rule", list->item[i], next));
        if (!is_end)
            MP_TRY(check_rule(reading, next));
        ++*count;
    }
    return MP_OK;
}

/* Takes the document. */
static int read_document(const char *path, struct mp_yaml *document, struct mp_rules *rules,
                         struct mp_error *error) {
    const struct mp_reading reading = {path, error};
    struct said said = {0};
    if (!MP_ROOM(rules->document, rules->documents)) {
        mp_yaml_destroy(document);
        return mp_no_memory(error);
    }
    rules->document[rules->documents++] = document;
    MP_TRY(mp_options_read(&reading, file_rows, "a rules file", document, &said));
    MP_TRY(read_list(&reading, said.rules, false, &rules->rule, &rules->count));
    return read_list(&reading, said.ends, true, &rules->end, &rules->ends);
}

int mp_rules_load(const char *path, struct mp_rules *rules, struct mp_error *error) {
    struct mp_yaml *document = NULL;
    MP_TRY(mp_yaml_load(path, &document, error));
    return read_document(path, document, rules, error);
}

int mp_rules_load_ready(struct mp_rules *rules, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    MP_AUTO(names) char **names = NULL;
    MP_TRY(mp_path_names(MP_RULES, &names, error));
    for (int i = 0; names[i]; i++) {
        MP_TRY(mp_path_file(MP_RULES, names[i], path, error));
        MP_TRY(mp_rules_load(path, rules, error));
    }
    return MP_OK;
}

int mp_rules_parse(const char *name, const char *text, size_t size, struct mp_rules *rules,
                   struct mp_error *error) {
    struct mp_yaml *document = NULL;
    MP_TRY(mp_yaml_parse(name, text, size, &document, error));
    return read_document(name, document, rules, error);
}

void mp_rules_destroy(struct mp_rules *rules) {
    for (int i = 0; i < rules->documents; i++)
        mp_yaml_destroy(rules->document[i]);
    free(rules->document);
    free(rules->rule);
    free(rules->end);
    *rules = (struct mp_rules){0};
}
