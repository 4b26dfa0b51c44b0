/* Rules: which range of an annotated program is which phase of training.  What a rules file says is
 * in grammar.txt beside this header, which `moeperf show rules` prints. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/record/record.h"
#include "reference/base/option.h"

extern const char mp_rules_grammar[]; /* grammar.txt */

enum mp_rule_source {
    MP_RULE_UNSAID,
    MP_RULE_CONSTANT,
    MP_RULE_FIELD, /* of the payload; an empty name: the plain value */
    MP_RULE_COUNT
};

struct mp_rule_value {
    enum mp_rule_source source;
    int64_t constant;
    const char *field;
};

struct mp_rule {
    const char *name, *domain; /* patterns; domain NULL: any */
    int phase;                 /* enum mp_phase; MP_PHASES: the name says it */
    int in_flight;             /* 1: the span is one of stream "comm" */
    struct mp_rule_value layer, iteration, direction, tokens, bytes;
    struct mp_rule_value waits; /* ns; constant INT64_MAX: all of it */
    int line;
};

struct mp_rules {
    struct mp_rule *rule;
    int count;
    struct mp_rule *end; /* of iterations: name and domain only; the first that occurs counts */
    int ends;
    struct mp_yaml **document; /* they have all texts */
    int documents;
};

extern const struct mp_option mp_rule_rows[]; /* what a rule may say */

/* Adds the rules of a file behind those that are there.  `rules` starts as zeros.  Errors: those of
 * mp_yaml_load, and MP_EINVAL with "path:line: ..." for what is not a rule. */
int mp_rules_load(const char *path, struct mp_rules *rules, struct mp_error *error);
/* The same from memory; `name` stands for the path. */
int mp_rules_parse(const char *name, const char *text, size_t size, struct mp_rules *rules,
                   struct mp_error *error);
/* All ready-made rules, in the order of their names.  Errors: also those of mp_path_names. */
int mp_rules_load_ready(struct mp_rules *rules, struct mp_error *error);
void mp_rules_destroy(struct mp_rules *rules); /* accepts zeros */

/* What a name says. */
struct mp_rule_capture {
    int64_t layer, iteration; /* -1: nothing */
    int phase;                /* MP_PHASES: nothing */
};

/* Whether the pattern covers the whole text.  Takes time of at most the product of both lengths. */
bool mp_rule_match(const char *pattern, const char *text, struct mp_rule_capture *capture);

/* Whether a rule is for a range, and what its name says then. */
bool mp_rule_covers(const struct mp_rule *rule, const char *name, const char *domain,
                    struct mp_rule_capture *capture);
/* The first rule for a range, and what its name says; NULL: none. */
const struct mp_rule *mp_rules_find(const struct mp_rules *rules, const char *name,
                                    const char *domain, struct mp_rule_capture *capture);
/* Which of `end` such a range is, the first that matches; -1: none. */
int mp_rules_end_iteration(const struct mp_rules *rules, const char *name, const char *domain);
