#include "harness/record/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/record/mapping.h"
#include "harness/suite/paths.h"
#include "reference/base/characters.h"
#include "reference/base/yaml.h"

enum {
    WRITTEN_LIMIT = 200, /* proposals, and names without one */
    SAID_LIMIT = 12,
    NAME_BYTES = 61,
    LEAST_ITERATIONS = 3
};

/* Where a phase comes from. */
enum reason { UNKNOWN, IN_USE, READY_MADE, BY_NAME, COVERS_TIME, MEETS };

struct proposal {
    const struct mp_name_use *use;
    const struct mp_rule *rule; /* NULL: by structure */
    enum reason reason;
    int phase;     /* MP_PHASES: none */
    bool encloses; /* left out, for ranges inside it that say more */
    bool ends;     /* an iteration, for all that is known */
};

struct mp_suggestion {
    struct mp_arena memory;
    struct mp_names names;
    struct mp_rules ready, guesses;
    const struct mp_rules *list[3]; /* those in use, ready, guesses */
    struct proposal *proposal;      /* [count] as the names' uses */
    struct proposal **order;        /* [count] as they are written */
    int count, processes;
    bool several_domains;
};

/* ---- what each name is taken for ---- */

static bool is_guess(const struct proposal *proposal) {
    return proposal->phase != MP_PHASES && !proposal->encloses && proposal->reason >= BY_NAME;
}

static void in_small_letters(const char *name, char small[], size_t size) {
    size_t length = 0;
    for (; name[length] && length + 1 < size; length++)
        small[length] = (char)tolower((unsigned char)name[length]);
    small[length] = '\0';
}

static void judge_name(const struct mp_suggestion *suggestion, struct proposal *proposal) {
    static const enum reason reasons[] = {IN_USE, READY_MADE, BY_NAME};
    const struct mp_name_use *use = proposal->use;
    char small[4096];
    in_small_letters(use->sample, small, sizeof small);
    for (int i = 0; i < 3; i++) {
        struct mp_rule_capture capture;
        proposal->rule =
            mp_rules_find(suggestion->list[i], i == 2 ? small : use->sample, use->domain, &capture);
        if (!proposal->rule)
            continue;
        proposal->reason = reasons[i];
        proposal->phase =
            proposal->rule->phase == MP_PHASES ? capture.phase : proposal->rule->phase;
        return;
    }
}

/* Whether the guess about a range is worth less than what is known of one inside it: a layer's
 * experts say more than the layer, which holds gate and exchanges as well, and an exchange that a
 * rule knows more than what calls it. */
static bool says_less(const struct proposal *outer, const struct proposal *inner) {
    if (outer->reason != BY_NAME)
        return false;
    return (outer->phase == MP_PHASE_EXPERT && inner->phase == MP_PHASE_EXPERT) ||
           (mp_mapping_of_exchange(outer->phase) && mp_mapping_of_exchange(inner->phase) &&
            (inner->reason == IN_USE || inner->reason == READY_MADE));
}

static void leave_out_enclosing(struct mp_suggestion *suggestion) {
    for (int i = 0; i < suggestion->count; i++) {
        const struct proposal *inner = &suggestion->proposal[i];
        int outer = inner->use->parent;
        for (int depth = 0; outer >= 0 && depth < 32; depth++) {
            struct proposal *proposal = &suggestion->proposal[outer];
            proposal->encloses = proposal->encloses || says_less(proposal, inner);
            outer = proposal->use->parent;
        }
    }
}

static bool covers_time(const struct proposal *proposal) {
    const struct mp_name_use *use = proposal->use;
    return proposal->phase == MP_PHASES && use->encloses && use->least >= LEAST_ITERATIONS &&
           use->most - use->least <= 1 && use->share > 0.7;
}

/* One name is the iteration: a rule's; else of those called so the one with most of the time; else
 * the outermost that covers the time. */
static bool choose_iteration(struct mp_suggestion *suggestion) {
    struct proposal *named = NULL, *covering = NULL;
    bool is_known = false;
    for (int i = 0; i < suggestion->count; i++) {
        struct proposal *proposal = &suggestion->proposal[i];
        const bool is_iteration = proposal->phase == MP_PHASE_ITERATION;
        is_known = is_known || (is_iteration && proposal->reason < BY_NAME);
        if (is_iteration && (!named || proposal->use->seconds > named->use->seconds))
            named = proposal;
        if (covers_time(proposal) && (!covering || proposal->use->most < covering->use->most))
            covering = proposal;
    }
    for (int i = 0; i < suggestion->count; i++) {
        struct proposal *proposal = &suggestion->proposal[i];
        if (proposal->phase == MP_PHASE_ITERATION && proposal->reason == BY_NAME &&
            (is_known || proposal != named))
            *proposal = (struct proposal){.use = proposal->use, .phase = MP_PHASES};
    }
    if (!named && covering) {
        covering->phase = MP_PHASE_ITERATION;
        covering->reason = COVERS_TIME;
    }
    return named || covering;
}

static bool has_end(const struct mp_suggestion *suggestion, const struct mp_name_use *use) {
    return mp_rules_end_iteration(suggestion->list[0], use->sample, use->domain) >= 0 ||
           mp_rules_end_iteration(suggestion->list[1], use->sample, use->domain) >= 0;
}

/* Without iterations: the optimizer's longest range ends one; else the last of those that all
 * processes do equally often and as rarely as any. */
static void choose_end(struct mp_suggestion *suggestion) {
    struct proposal *optimizer = NULL, *last = NULL;
    for (int i = 0; i < suggestion->count; i++) {
        struct proposal *proposal = &suggestion->proposal[i];
        const struct mp_name_use *use = proposal->use;
        if (has_end(suggestion, use))
            return;
        if (proposal->phase == MP_PHASE_OPTIMIZER &&
            (!optimizer || use->seconds > optimizer->use->seconds))
            optimizer = proposal;
        if (use->least >= LEAST_ITERATIONS && use->least == use->most &&
            (!last || use->most < last->use->most ||
             (use->most == last->use->most && use->first_end > last->use->first_end)))
            last = proposal;
    }
    if (optimizer)
        optimizer->ends = true;
    else if (last)
        last->ends = true;
}

/* A meeting next to experts is the exchange before or behind them. */
static int meeting_phase(const struct mp_suggestion *suggestion, const struct mp_name_use *use) {
    if (use->before >= 0 && suggestion->proposal[use->before].phase == MP_PHASE_EXPERT)
        return MP_PHASE_COMBINE;
    if (use->after >= 0 && suggestion->proposal[use->after].phase == MP_PHASE_EXPERT)
        return MP_PHASE_DISPATCH;
    return MP_PHASE_WAIT;
}

static void judge_meetings(struct mp_suggestion *suggestion) {
    for (int i = 0; i < suggestion->count; i++) {
        struct proposal *proposal = &suggestion->proposal[i];
        if (proposal->phase == MP_PHASES && proposal->use->meets && !proposal->use->encloses) {
            proposal->phase = meeting_phase(suggestion, proposal->use);
            proposal->reason = MEETS;
        }
    }
}

/* ---- order ---- */

static int stars(const char *pattern) {
    int count = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && pattern[1])
            pattern++;
        else
            count += *pattern == '*';
    }
    return count;
}

/* What is proposed, then the rest, the frequent first; patterns that cover other names come after
 * those. */
static int compare_proposals(const void *left, const void *right) {
    const struct proposal *a = *(struct proposal *const *)left,
                          *b = *(struct proposal *const *)right;
    const int a_stars = is_guess(a) ? stars(a->use->pattern) : 0,
              b_stars = is_guess(b) ? stars(b->use->pattern) : 0;
    return MP_ORDER(is_guess(b), is_guess(a)) ?: MP_ORDER(a_stars, b_stars)
           ?: MP_ORDER(b->use->count, a->use->count) ?: MP_ORDER(a->use, b->use);
}

static int judge(struct mp_suggestion *made, const char *const paths[], struct mp_error *error) {
    MP_TRY(mp_rules_load_ready(&made->ready, error));
    MP_TRY(mp_rules_parse("guesses.yaml", mp_rules_guesses, strlen(mp_rules_guesses),
                          &made->guesses, error));
    MP_TRY(mp_names_read(paths, made->processes, &made->memory, &made->names, error));
    const struct mp_name_use *uses = made->names.use;
    made->count = made->names.uses;
    MP_TAKE(&made->memory, made->proposal, made->count + 1);
    MP_TAKE(&made->memory, made->order, made->count + 1);
    MP_TRY(mp_arena_check(&made->memory, error));
    for (int i = 0; i < made->count; i++) {
        made->proposal[i] = (struct proposal){.use = &uses[i], .phase = MP_PHASES};
        made->order[i] = &made->proposal[i];
        made->several_domains =
            made->several_domains || strcmp(uses[i].domain, uses[0].domain) != 0;
        judge_name(made, &made->proposal[i]);
    }
    leave_out_enclosing(made);
    const bool has_iteration = choose_iteration(made);
    judge_meetings(made);
    if (!has_iteration)
        choose_end(made);
    MP_SORT(made->order, made->count, compare_proposals);
    return MP_OK;
}

int mp_suggestion_create(const char *const paths[], int count, const struct mp_rules *rules,
                         struct mp_suggestion **suggestion, struct mp_error *error) {
    struct mp_suggestion *made;
    MP_TRY(MP_NEW(made, 1, error));
    made->list[0] = rules;
    made->list[1] = &made->ready;
    made->list[2] = &made->guesses;
    made->processes = count;
    int code = judge(made, paths, error);
    if (code)
        mp_suggestion_destroy(made);
    else
        *suggestion = made;
    return code;
}

void mp_suggestion_destroy(struct mp_suggestion *suggestion) {
    if (!suggestion)
        return;
    mp_rules_destroy(&suggestion->ready);
    mp_rules_destroy(&suggestion->guesses);
    mp_arena_release(&suggestion->memory);
    free(suggestion);
}

int mp_suggestion_guesses(const struct mp_suggestion *suggestion) {
    int guesses = 0;
    for (int i = 0; i < suggestion->count; i++) {
        const struct proposal *proposal = &suggestion->proposal[i];
        guesses += is_guess(proposal) &&
                   (proposal->phase == MP_PHASE_ITERATION || mp_mapping_of_model(proposal->phase));
    }
    return guesses;
}

/* ---- saying ---- */

static const char *shown(const char *name, char text[NAME_BYTES]) {
    mp_clean_text(text, NAME_BYTES, name);
    if (strlen(name) >= NAME_BYTES)
        memcpy(text + strlen(text) - (strlen(text) > 3 ? 3 : strlen(text)), "...", 3);
    return text;
}

void mp_suggestion_say(const struct mp_suggestion *suggestion, FILE *stream) {
    int said[2] = {0};
    fprintf(stream, "%10s %9s %9s %-10s %s\n", "ranges", "s", "processes", "phase", "name");
    for (int i = 0; i < suggestion->count; i++) {
        const struct proposal *proposal = suggestion->order[i];
        const bool has_phase = proposal->phase != MP_PHASES && !proposal->encloses;
        if (said[has_phase]++ < SAID_LIMIT) {
            char name[NAME_BYTES];
            const struct mp_name_use *use = proposal->use;
            const char *phase = proposal->phase == MP_PHASES || proposal->encloses
                                    ? "-"
                                    : mp_phase_name((enum mp_phase)proposal->phase);
            fprintf(stream, "%10" PRId64 " %9.3f %5d/%-3d %-10s %s\n", use->count, use->seconds,
                    use->processes, suggestion->processes, phase, shown(use->pattern, name));
        }
    }
    const int more = said[0] + said[1] - (said[0] < SAID_LIMIT ? said[0] : SAID_LIMIT) -
                     (said[1] < SAID_LIMIT ? said[1] : SAID_LIMIT);
    if (more > 0)
        fprintf(stream, "and %d more name%s\n", more, more == 1 ? "" : "s");
    if (suggestion->names.left_out > 0)
        fprintf(stream,
                "%" PRId64 " ranges have names beyond the first 50000 and are not told apart\n",
                suggestion->names.left_out);
}

/* ---- writing ---- */

struct writing {
    const struct mp_suggestion *suggestion;
    FILE *stream;
    struct mp_error *error;
};

static int write_text(const struct writing *writing, const char *key, const char *text) {
    fprintf(writing->stream, "%s: ", key);
    return mp_yaml_write_text(writing->stream, text, writing->error);
}

/* A field's name may hold anything, or be none: the plain value. */
static int write_field(const struct writing *writing, const char *key, const char *field) {
    char text[1024];
    snprintf(text, sizeof text, *field ? "payload.%s" : "payload", field);
    fputs(", ", writing->stream);
    return write_text(writing, key, text);
}

static int write_value(const struct writing *writing, const char *key,
                       const struct mp_rule_value *value) {
    if (value->source == MP_RULE_FIELD)
        return write_field(writing, key, value->field);
    if (value->source == MP_RULE_CONSTANT)
        fprintf(writing->stream, ", %s: %" PRId64, key, value->constant);
    else if (value->source == MP_RULE_COUNT)
        fprintf(writing->stream, ", %s: count", key);
    return MP_OK;
}

static int write_values(const struct writing *writing, const struct mp_rule *rule) {
    MP_TRY(write_value(writing, "layer", &rule->layer));
    MP_TRY(write_value(writing, "iteration", &rule->iteration));
    MP_TRY(write_value(writing, "tokens", &rule->tokens));
    MP_TRY(write_value(writing, "bytes", &rule->bytes));
    if (rule->direction.source == MP_RULE_CONSTANT)
        fprintf(writing->stream, ", direction: %s",
                rule->direction.constant == MP_BACKWARD ? "backward" : "forward");
    else if (rule->direction.source == MP_RULE_FIELD)
        MP_TRY(write_field(writing, "direction", rule->direction.field));
    if (rule->waits.source == MP_RULE_CONSTANT)
        fputs(", waits: all", writing->stream);
    else if (rule->waits.source == MP_RULE_FIELD)
        MP_TRY(write_field(writing, "waits", rule->waits.field));
    if (rule->in_flight)
        fputs(", stream: comm", writing->stream);
    return MP_OK;
}

static int write_pattern(const struct writing *writing, const char *name, const char *domain) {
    fputs("  - {", writing->stream);
    MP_TRY(write_text(writing, "name", name));
    if (domain) {
        fputs(", ", writing->stream);
        MP_TRY(write_text(writing, "domain", domain));
    }
    return MP_OK;
}

/* A rule as its file has it. */
static int write_rule(const struct writing *writing, const struct mp_rule *rule) {
    MP_TRY(write_pattern(writing, rule->name, rule->domain));
    if (rule->phase != MP_PHASES)
        fprintf(writing->stream, ", phase: %s", mp_phase_name((enum mp_phase)rule->phase));
    MP_TRY(write_values(writing, rule));
    fputs("}\n", writing->stream);
    return MP_OK;
}

static void write_facts(const struct writing *writing, const struct proposal *proposal) {
    static const char *const why[] = {[BY_NAME] = "by its name",
                                      [COVERS_TIME] = "it covers the time, again and again",
                                      [MEETS] = "it ends on all processes together"};
    char name[NAME_BYTES];
    const struct mp_name_use *use = proposal->use;
    fprintf(writing->stream, "%" PRId64 " range%s, %.3f s, %d of %d processes", use->count,
            use->count == 1 ? "" : "s", use->seconds, use->processes,
            writing->suggestion->processes);
    if (writing->suggestion->processes > 1 && use->least == use->most)
        fprintf(writing->stream, ", %" PRId64 " on each", use->most);
    if (use->field[MP_NAME_BYTES])
        fputs(", with bytes as a payload", writing->stream);
    if (use->parent >= 0)
        fprintf(writing->stream, ", inside %s",
                shown(writing->suggestion->proposal[use->parent].use->pattern, name));
    if (is_guess(proposal))
        fprintf(writing->stream, "; a guess: %s", why[proposal->reason]);
    if (proposal->encloses)
        fputs("; holds ranges that say more", writing->stream);
    fputs("\n", writing->stream);
}

static const char *pattern_domain(const struct writing *writing, const struct proposal *proposal) {
    return *proposal->use->domain || writing->suggestion->several_domains ? proposal->use->domain
                                                                          : NULL;
}

static bool goes_backward(const char *name) {
    char small[4096];
    in_small_letters(name, small, sizeof small);
    return strstr(small, "backward") || strstr(small, "bwd");
}

/* A proposal's rule: what the guess says, and what else the ranges have. */
static int write_proposal(const struct writing *writing, const struct proposal *proposal) {
    static const struct mp_rule nothing = {.phase = MP_PHASES};
    const struct mp_name_use *use = proposal->use;
    const struct mp_rule *guess = proposal->rule ? proposal->rule : &nothing;
    const bool layers = mp_mapping_of_model(proposal->phase) && proposal->phase != MP_PHASE_EMBED &&
                        proposal->phase != MP_PHASE_HEAD,
               exchanges = mp_mapping_of_exchange(proposal->phase),
               backward = goes_backward(use->sample);
    FILE *stream = writing->stream;
    fputs("  # ", stream);
    write_facts(writing, proposal);
    MP_TRY(write_pattern(writing, use->pattern, pattern_domain(writing, proposal)));
    fprintf(stream, ", phase: %s", mp_phase_name((enum mp_phase)proposal->phase));
    if (use->field[MP_NAME_ITERATION] && !use->says_iteration)
        MP_TRY(write_field(writing, "iteration", use->field[MP_NAME_ITERATION]));
    if (layers && use->field[MP_NAME_LAYER] && !use->says_layer)
        MP_TRY(write_field(writing, "layer", use->field[MP_NAME_LAYER]));
    else if (layers && !use->says_layer && !backward)
        fputs(", layer: count", stream);
    if (mp_mapping_of_model(proposal->phase))
        fprintf(stream, ", direction: %s", backward ? "backward" : "forward");
    if (layers && use->field[MP_NAME_TOKENS])
        MP_TRY(write_field(writing, "tokens", use->field[MP_NAME_TOKENS]));
    else if (proposal->phase == MP_PHASE_EXPERT && use->has_value)
        fputs(", tokens: payload", stream);
    if (exchanges && use->field[MP_NAME_BYTES])
        MP_TRY(write_field(writing, "bytes", use->field[MP_NAME_BYTES]));
    else if (exchanges && use->has_value)
        fputs(", bytes: payload", stream);
    if (exchanges && (use->may_meet || use->meets || guess->waits.source == MP_RULE_CONSTANT))
        fputs(", waits: all", stream);
    fputs("}\n", stream);
    return MP_OK;
}

static bool ended(const struct mp_suggestion *suggestion, const struct mp_rule *end) {
    struct mp_rule_capture unused;
    return MP_ANY(i, suggestion->count,
                  mp_rule_covers(end, suggestion->proposal[i].use->sample,
                                 suggestion->proposal[i].use->domain, &unused));
}

static int write_rules(const struct writing *writing) {
    const struct mp_suggestion *suggestion = writing->suggestion;
    int written = 0;
    fputs("rules:", writing->stream);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < suggestion->list[l]->count; i++) {
            const struct mp_rule *rule = &suggestion->list[l]->rule[i];
            if (!MP_ANY(p, suggestion->count, suggestion->proposal[p].rule == rule))
                continue;
            fputs(written++ ? "" : "\n", writing->stream);
            MP_TRY(write_rule(writing, rule));
        }
    for (int i = 0; i < suggestion->count && i < WRITTEN_LIMIT; i++) {
        if (!is_guess(suggestion->order[i]))
            break;
        fputs(written++ ? "" : "\n", writing->stream);
        MP_TRY(write_proposal(writing, suggestion->order[i]));
    }
    fputs(written ? "" : " []\n", writing->stream);
    return MP_OK;
}

/* Ready-made rules may be in use, and several of them have the same ends. */
static bool is_repeated(const struct mp_suggestion *suggestion, const struct mp_rule *end) {
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < suggestion->list[l]->ends; i++) {
            const struct mp_rule *earlier = &suggestion->list[l]->end[i];
            if (earlier == end)
                return false;
            if (!strcmp(earlier->name, end->name) && !earlier->domain == !end->domain &&
                (!end->domain || !strcmp(earlier->domain, end->domain)))
                return true;
        }
    return false;
}

static int write_ends(const struct writing *writing) {
    const struct mp_suggestion *suggestion = writing->suggestion;
    int written = 0;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < suggestion->list[l]->ends; i++) {
            const struct mp_rule *end = &suggestion->list[l]->end[i];
            if (!ended(suggestion, end) || is_repeated(suggestion, end))
                continue;
            fputs(written++ ? "" : "\niteration-ends:\n", writing->stream);
            MP_TRY(write_pattern(writing, end->name, end->domain));
            fputs("}\n", writing->stream);
        }
    for (int i = 0; i < suggestion->count; i++) {
        const struct proposal *proposal = &suggestion->proposal[i];
        if (!proposal->ends)
            continue;
        fputs(written++ ? ""
                        : "\n# No range is an iteration; each ends with this one, a guess.\n"
                          "iteration-ends:\n",
              writing->stream);
        MP_TRY(write_pattern(writing, proposal->use->pattern, pattern_domain(writing, proposal)));
        fputs("}\n", writing->stream);
    }
    return MP_OK;
}

/* What has no phase, ready to be given one. */
static int write_others(const struct writing *writing) {
    const struct mp_suggestion *suggestion = writing->suggestion;
    int others = 0;
    for (int i = 0; i < suggestion->count; i++) {
        const struct proposal *proposal = suggestion->order[i];
        if (proposal->phase != MP_PHASES && !proposal->encloses)
            continue;
        if (others++ >= WRITTEN_LIMIT)
            continue;
        fputs(others > 1 ? ""
                         : "\n# Names without a phase, the frequent first.  Those that matter "
                           "need one, among the rules:\n",
              writing->stream);
        fputs("#", writing->stream);
        MP_TRY(write_pattern(writing, proposal->use->pattern, pattern_domain(writing, proposal)));
        fputs(", phase: }  # ", writing->stream);
        write_facts(writing, proposal);
    }
    if (others > WRITTEN_LIMIT)
        fprintf(writing->stream, "# and %d more\n", others - WRITTEN_LIMIT);
    return MP_OK;
}

static int write_all(const struct writing *writing) {
    MP_TRY(write_rules(writing));
    MP_TRY(write_ends(writing));
    return write_others(writing);
}

int mp_suggestion_write(const struct mp_suggestion *suggestion, const char *path,
                        const char *resume, struct mp_error *error) {
    FILE *stream = fopen(path, "wx");
    const struct writing writing = {suggestion, stream, error};
    char command[4 * MP_PATH_SIZE];
    if (!stream)
        return errno == EEXIST
                   ? mp_fail(error, MP_EINVAL, "%s: is there already, and stays as it is", path)
                   : mp_fail(error, MP_EIO, "%s: %s", path, strerror(errno));
    fprintf(stream,
            "description: rules proposed for one recording; edit them\n\n"
            "# What the keys mean: moeperf show rules.  When the phases are right:\n"
            "#   %s --rules THIS-FILE\n"
            "# Of ranges in one another the outermost counts: leave out those that hold others.\n",
            mp_clean_text(command, sizeof command, resume));
    int code = write_all(&writing);
    const bool failed = ferror(stream);
    if ((fclose(stream) || failed) && !code)
        code = mp_fail(error, errno == ENOSPC ? MP_ENOSPACE : MP_EIO, "%s: can't be written", path);
    if (code)
        remove(path);
    return code;
}
