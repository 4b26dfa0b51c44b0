#include "harness/record/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/characters.h"
#include "reference/base/yaml.h"
#include "reference/base/option.h"

enum { PATTERN_LIMIT = 1000 };

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

static bool covers(const struct mp_rule *rule, const char *name, const char *domain,
                   struct mp_rule_capture *capture) {
    struct mp_rule_capture unused;
    return (!rule->domain || mp_rule_match(rule->domain, domain, &unused)) &&
           mp_rule_match(rule->name, name, capture);
}

const struct mp_rule *mp_rules_find(const struct mp_rules *rules, const char *name,
                                    const char *domain, struct mp_rule_capture *capture) {
    for (int i = 0; i < rules->count; i++)
        if (covers(&rules->rule[i], name, domain, capture))
            return &rules->rule[i];
    return NULL;
}

int mp_rules_end_iteration(const struct mp_rules *rules, const char *name, const char *domain) {
    struct mp_rule_capture unused;
    for (int i = 0; i < rules->ends; i++)
        if (covers(&rules->end[i], name, domain, &unused))
            return i;
    return -1;
}

/* ---- reading ---- */

struct reading {
    const char *path;
    struct mp_arena *arena; /* of the rules */
    struct mp_error *error;
};

static int no_memory(const struct reading *reading) {
    return mp_fail(reading->error, MP_ENOMEM, "%s: no memory for rules", reading->path);
}

static int scalar(const struct reading *reading, const char *key, const struct mp_yaml *value) {
    if (value->kind == MP_YAML_SCALAR)
        return MP_OK;
    return mp_fail(reading->error, MP_EFORMAT, "%s:%d: %s: should be a text or a number",
                   reading->path, value->line, key);
}

static int copy_text(const struct reading *reading, const char *text, char **copy) {
    *copy = mp_arena_text(reading->arena, text);
    return *copy ? MP_OK : no_memory(reading);
}

static int read_pattern(const struct reading *reading, const char *key, const struct mp_yaml *value,
                        char **pattern) {
    int code = scalar(reading, key, value);
    if (!code && strlen(value->text) > PATTERN_LIMIT)
        code = mp_fail(reading->error, MP_EFORMAT, "%s:%d: %s: a pattern has at most %d bytes",
                       reading->path, value->line, key, PATTERN_LIMIT);
    return code ? code : copy_text(reading, value->text, pattern);
}

static int read_phase(const struct reading *reading, const struct mp_yaml *value, int *phase) {
    const char *names[MP_PHASES + 1] = {NULL};
    int code = scalar(reading, "phase", value);
    if (code)
        return code;
    *phase = (int)mp_phase_find(value->text, strlen(value->text));
    if (*phase < MP_PHASES)
        return MP_OK;
    for (int known = 0; known < MP_PHASES; known++)
        names[known] = mp_phase_name((enum mp_phase)known);
    return mp_fail(reading->error, MP_EFORMAT, "%s:%d: phase: \"%.60s\" is no phase%s",
                   reading->path, value->line, value->text, mp_meant(value->text, names).text);
}

static int read_value(const struct reading *reading, const char *key, const struct mp_yaml *value,
                      bool may_count, struct mp_rule_value *to) {
    int code = scalar(reading, key, value);
    if (code)
        return code;
    const char *text = value->text;
    if (!strncmp(text, "payload", 7) && (!text[7] || (text[7] == '.' && text[8]))) {
        to->source = MP_RULE_FIELD;
        return copy_text(reading, text[7] ? text + 8 : "", &to->field);
    }
    if (may_count && !strcmp(text, "count")) {
        to->source = MP_RULE_COUNT;
        return MP_OK;
    }
    to->source = MP_RULE_CONSTANT;
    if (mp_whole_number(text, 0, INT64_MAX, &to->constant))
        return MP_OK;
    return mp_fail(reading->error, MP_EFORMAT,
                   "%s:%d: %s: \"%.60s\" should be a whole number, payload.FIELD, payload%s",
                   reading->path, value->line, key, text, may_count ? " or count" : "");
}

static int read_direction(const struct reading *reading, const struct mp_yaml *value,
                          struct mp_rule_value *to) {
    int code = scalar(reading, "direction", value);
    if (code)
        return code;
    const bool forward = !strcmp(value->text, "forward");
    if (forward || !strcmp(value->text, "backward")) {
        *to = (struct mp_rule_value){MP_RULE_CONSTANT, forward ? MP_FORWARD : MP_BACKWARD, NULL};
        return MP_OK;
    }
    if (!strncmp(value->text, "payload", 7))
        return read_value(reading, "direction", value, false, to);
    return mp_fail(reading->error, MP_EFORMAT,
                   "%s:%d: direction: \"%.60s\" should be forward, backward or payload.FIELD",
                   reading->path, value->line, value->text);
}

static int read_stream(const struct reading *reading, const struct mp_yaml *value,
                       bool *in_flight) {
    int code = scalar(reading, "stream", value);
    if (code)
        return code;
    *in_flight = !strcmp(value->text, "comm");
    if (*in_flight || !strcmp(value->text, "compute"))
        return MP_OK;
    return mp_fail(reading->error, MP_EFORMAT, "%s:%d: stream: \"%.60s\" should be compute or comm",
                   reading->path, value->line, value->text);
}

static int read_waits(const struct reading *reading, const struct mp_yaml *value,
                      struct mp_rule_value *to) {
    int code = scalar(reading, "waits", value);
    if (code)
        return code;
    if (!strcmp(value->text, "all")) {
        *to = (struct mp_rule_value){MP_RULE_CONSTANT, INT64_MAX, NULL};
        return MP_OK;
    }
    if (!strncmp(value->text, "payload", 7))
        return read_value(reading, "waits", value, false, to);
    return mp_fail(reading->error, MP_EFORMAT,
                   "%s:%d: waits: \"%.60s\" should be all or payload.FIELD", reading->path,
                   value->line, value->text);
}

static int read_key(const struct reading *reading, const char *key, int line,
                    const struct mp_yaml *value, bool is_end, struct mp_rule *rule) {
    static const char *const known[] = {"name",      "domain",    "phase",  "layer",
                                        "iteration", "direction", "tokens", "bytes",
                                        "stream",    "waits",     NULL};
    if (!strcmp(key, "name"))
        return read_pattern(reading, key, value, &rule->name);
    if (!strcmp(key, "domain"))
        return read_pattern(reading, key, value, &rule->domain);
    if (!is_end && !strcmp(key, "phase"))
        return read_phase(reading, value, &rule->phase);
    if (!is_end && !strcmp(key, "layer"))
        return read_value(reading, key, value, true, &rule->layer);
    if (!is_end && !strcmp(key, "iteration"))
        return read_value(reading, key, value, true, &rule->iteration);
    if (!is_end && !strcmp(key, "direction"))
        return read_direction(reading, value, &rule->direction);
    if (!is_end && !strcmp(key, "tokens"))
        return read_value(reading, key, value, false, &rule->tokens);
    if (!is_end && !strcmp(key, "bytes"))
        return read_value(reading, key, value, false, &rule->bytes);
    if (!is_end && !strcmp(key, "waits"))
        return read_waits(reading, value, &rule->waits);
    if (!is_end && !strcmp(key, "stream"))
        return read_stream(reading, value, &rule->in_flight);
    return mp_fail(reading->error, MP_EFORMAT, "%s:%d: \"%.60s\" is not a key of %s%s",
                   reading->path, line, key, is_end ? "iteration-ends" : "a rule",
                   is_end ? "" : mp_meant(key, known).text);
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

static int read_rule(const struct reading *reading, const struct mp_yaml *node, bool is_end,
                     struct mp_rule *rule) {
    *rule = (struct mp_rule){.phase = MP_PHASES, .line = node->line};
    if (node->kind != MP_YAML_MAPPING)
        return mp_fail(reading->error, MP_EFORMAT, "%s:%d: should be a mapping with a name",
                       reading->path, node->line);
    int code = MP_OK;
    for (int i = 0; i < node->count && !code; i++)
        code = read_key(reading, node->key[i], node->key_line[i], node->item[i], is_end, rule);
    if (!code && !rule->name)
        code = mp_fail(reading->error, MP_EFORMAT, "%s:%d: a rule needs a name", reading->path,
                       node->line);
    const bool said = !code && says_phase(rule->name);
    if (!code && !is_end && said == (rule->phase != MP_PHASES))
        code = mp_fail(reading->error, MP_EFORMAT,
                       said ? "%s:%d: the name has {phase}, so there can't be a phase as well"
                            : "%s:%d: a rule needs a phase, or {phase} in its name",
                       reading->path, node->line);
    return code;
}

/* Adds the items of a sequence to a list. */
static int read_list(const struct reading *reading, const struct mp_yaml *list, bool is_end,
                     struct mp_rule **rules, int *count) {
    if (list->kind != MP_YAML_SEQUENCE)
        return mp_fail(reading->error, MP_EFORMAT, "%s:%d: should be a list of rules",
                       reading->path, list->line);
    struct mp_rule *grown =
        realloc(*rules, ((size_t)*count + (size_t)list->count + 1) * sizeof *grown);
    if (!grown)
        return no_memory(reading);
    *rules = grown;
    for (int i = 0; i < list->count; i++) {
        int code = read_rule(reading, list->item[i], is_end, &grown[*count]);
        if (code)
            return code;
        ++*count;
    }
    return MP_OK;
}

static int read_document(const struct reading *reading, const struct mp_yaml *document,
                         struct mp_rules *rules) {
    if (document->kind != MP_YAML_MAPPING)
        return mp_fail(reading->error, MP_EFORMAT, "%s:%d: should be a mapping with rules",
                       reading->path, document->line);
    int code = MP_OK;
    bool has_rules = false;
    for (int i = 0; i < document->count && !code; i++) {
        const char *key = document->key[i];
        if (!strcmp(key, "rules")) {
            code = read_list(reading, document->item[i], false, &rules->rule, &rules->count);
            has_rules = true;
        } else if (!strcmp(key, "iteration-ends")) {
            code = read_list(reading, document->item[i], true, &rules->end, &rules->ends);
        } else if (!strcmp(key, "description")) {
            code = scalar(reading, key, document->item[i]);
        } else {
            code = mp_fail(reading->error, MP_EFORMAT,
                           "%s:%d: \"%.60s\" is unknown here; a rules file has description, rules "
                           "and iteration-ends",
                           reading->path, document->key_line[i], key);
        }
    }
    if (!code && !has_rules)
        code = mp_fail(reading->error, MP_EFORMAT, "%s:%d: there are no rules", reading->path,
                       document->line);
    return code;
}

int mp_rules_load(const char *path, struct mp_rules *rules, struct mp_error *error) {
    struct mp_yaml *document = NULL;
    const struct reading reading = {path, &rules->arena, error};
    int code = mp_yaml_load(path, &document, error);
    if (!code)
        code = read_document(&reading, document, rules);
    mp_yaml_destroy(document);
    return code;
}

int mp_rules_parse(const char *name, const char *text, size_t size, struct mp_rules *rules,
                   struct mp_error *error) {
    struct mp_yaml *document = NULL;
    const struct reading reading = {name, &rules->arena, error};
    int code = mp_yaml_parse(name, text, size, &document, error);
    if (!code)
        code = read_document(&reading, document, rules);
    mp_yaml_destroy(document);
    return code;
}

void mp_rules_destroy(struct mp_rules *rules) {
    mp_arena_release(&rules->arena);
    free(rules->rule);
    free(rules->end);
    *rules = (struct mp_rules){0};
}
