/* Matches: what mapping.c makes of a process's ranges on the way to spans, for its other parts. */
#pragma once

#include "harness/record/mapping.h"
#include "reference/base/arena.h"

/* A range that a rule matches. */
struct match {
    int64_t start_ns, end_ns;
    const struct mp_rule *rule;
    uint32_t thread;
    int32_t iteration; /* -1: not known yet */
    int64_t layer, tokens, bytes, wait_ns;
    int64_t origin_ns; /* start of the range that it echoes, or its own */
    size_t original;   /* the match of that range; NO_ORIGINAL: it has none, or is it itself */
    size_t outer;      /* of a wait and of a piece: the span that it is in, +1; 0: none */
    size_t rest;       /* of a span that is cut: its last piece, +1 */
    uint16_t traits, level;
    uint16_t piece; /* of a span that is cut: 0 is itself, up to its first wait */
    uint8_t phase, direction;
    bool dropped;       /* lies in another one */
    bool by_order;      /* told by mapping_tell_combines */
    bool has_device[2]; /* it has echoes on a GPU: forward, backward */
};
#define NO_ORIGINAL SIZE_MAX

/* What is known of a name of the spool. */
struct name {
    char *text;
    bool looked_up; /* the rest holds for ranges of `domain` */
    uint32_t domain;
    const struct mp_rule *rule;
    int end;       /* which of the rules that end iterations; -1: none */
    bool measures; /* the cost of a range: no program's name that rules might be for */
    struct mp_rule_capture capture;
    int64_t unmatched;
};

struct mp_mapping {
    struct mp_arena texts;
    char *path;
    const struct mp_rules *rules;
    struct mp_mapping_totals totals;
    struct mp_schemas *schemas;
    struct name *name; /* [names] by id */
    uint32_t names;
    struct name nameless; /* of ranges without a name */
    struct match *match;  /* by start; of equal ones the longer first */
    size_t matches;
    int end;         /* the first of the rules that end iterations for which there is a range */
    int64_t *end_ns; /* of that one's ranges */
    size_t ends;
};

static inline bool match_is_echo(const struct match *match) {
    return match->traits & MP_RANGE_ECHO;
}

static inline bool match_is_backward(const struct match *match) {
    return match->traits & MP_RANGE_BACKWARD;
}

/* Whether the same work has a span where a GPU did it. */
static inline bool match_is_replaced(const struct mp_mapping *mapping, const struct match *match) {
    if (match->traits & MP_RANGE_DEVICE)
        return false;
    return match_is_echo(match)
               ? match->original != NO_ORIGINAL &&
                     mapping->match[match->original].has_device[match_is_backward(match)]
               : match->has_device[0];
}

static inline bool match_is_span(const struct mp_mapping *mapping, const struct match *match) {
    return !match->dropped && !match_is_replaced(mapping, match);
}

/* Where no span is a combine, and those of dispatch are around experts: exchanges of one name for
 * both ways.  Where attention, gates or the like stand between the layers of an iteration, those
 * beside experts are theirs: before them dispatch, behind them combine.  Else, where each run of
 * experts has some before it, as many of those behind it are its way back.  Around experts that are
 * backward it is the other way round.  They get the experts' layer, else are counted with the runs,
 * unless the rule says the layer, and their direction.  As many behind all experts as were told, or
 * those that are known to be backward, are the backward pass of which no experts were recorded:
 * each layer has the same number of them.  What can't be told stays as it is, but for counted
 * layers where experts say theirs and there are not as many of them.  MP_ENOMEM. */
int mapping_tell_combines(struct mp_mapping *mapping, struct mp_error *error);
