#include "harness/record/matches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/record/clocks.h"
#include "harness/record/devices.h"
#include "profiler/nvtx/emit.h"
#include "profiler/nvtx/payload.h"
#include "profiler/record/launched.h"
#include "profiler/record/spool_writer.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"

enum {
    NAMES_LIMIT = 1 << 22, /* a damaged spool may claim any id */
    THREADS_LIMIT = 4096
};

void mp_mapping_destroy(struct mp_mapping *mapping) {
    if (!mapping)
        return;
    free(mapping->name);
    free(mapping->match);
    free(mapping->end_ns);
    mp_schemas_destroy(mapping->schemas);
    mp_arena_release(&mapping->texts);
    free(mapping);
}

const struct mp_mapping_totals *mp_mapping_totals(const struct mp_mapping *mapping) {
    return &mapping->totals;
}

const char *mp_mapping_unmatched(const struct mp_mapping *mapping, int64_t *count) {
    const struct name *most = NULL;
    for (uint32_t i = 0; i < mapping->names; i++)
        if (mapping->name[i].unmatched > (most ? most->unmatched : 0))
            most = &mapping->name[i];
    *count = most ? most->unmatched : 0;
    return most ? most->text : NULL;
}

/* ---- reading ---- */

static int keep_name(struct mp_mapping *mapping, const struct mp_spool_record *record,
                     struct mp_error *error) {
    uint32_t id = record->as.name.id;
    if (id >= NAMES_LIMIT)
        return MP_OK;
    MP_TRY(MP_REACH(mapping->name, mapping->names, id, NAMES_LIMIT, error));
    mapping->name[id] = (struct name){.text = mp_arena_text(&mapping->texts, record->as.name.text)};
    return mapping->name[id].text ? MP_OK : mp_no_memory(error);
}

static void keep_number(struct mp_mapping *mapping, const struct mp_spool_record *record) {
    const char *name = record->as.number.name;
    double value = record->as.number.value;
    if (!(value >= 0 && value < 1e15))
        return;
    if (!strcmp(name, "nvtx-unmatched-ends"))
        mapping->totals.unmatched_ends = (int64_t)value;
    else if (!strcmp(name, "nvtx-lost"))
        mapping->totals.lost = (int64_t)value;
    else if (!strcmp(name, "nvtx-pair-ns"))
        mapping->totals.pair_ns = value;
}

/* The value that a rule takes for a range; -1: none, or not yet known (counts). */
static int64_t value_of(const struct mp_mapping *mapping, const struct mp_spool_record *record,
                        const struct mp_rule_value *rule, int64_t captured) {
    int64_t value;
    switch (rule->source) {
    case MP_RULE_CONSTANT:
        return rule->constant;
    case MP_RULE_FIELD:
        return mp_payload_number(mapping->schemas, record, *rule->field ? rule->field : NULL,
                                 &value)
                   ? value
                   : -1;
    case MP_RULE_UNSAID:
        return captured;
    case MP_RULE_COUNT:
        break;
    }
    return -1;
}

static struct name *look_up(struct mp_mapping *mapping, const struct mp_range *range) {
    struct name *name = range->name < mapping->names && mapping->name[range->name].text
                            ? &mapping->name[range->name]
                            : &mapping->nameless;
    if (name->looked_up && name->domain == range->domain)
        return name;
    const char *text = name->text ? name->text : "", *domain = "";
    if (range->domain < mapping->names && mapping->name[range->domain].text)
        domain = mapping->name[range->domain].text;
    name->looked_up = true;
    name->domain = range->domain;
    name->rule = mp_rules_find(mapping->rules, text, domain, &name->capture);
    name->measures = !strcmp(text, MP_NVTX_COST) && !strcmp(domain, MP_NVTX_DOMAIN);
    name->end = mp_rules_end_iteration(mapping->rules, text, domain);
    return name;
}

static int add_end(struct mp_mapping *mapping, int end, int64_t end_ns, struct mp_error *error) {
    if (mapping->ends > 0 && end > mapping->end)
        return MP_OK;
    if (end != mapping->end)
        mapping->ends = 0;
    mapping->end = end;
    return MP_APPEND(mapping->end_ns, mapping->ends, error, end_ns);
}

static int keep_range(struct mp_mapping *mapping, const struct mp_spool_record *record,
                      int64_t *first_ns, int64_t *last_ns, struct mp_error *error) {
    const struct mp_range *range = &record->as.range.is;
    if (mapping->totals.ranges++ == 0 || range->start_ns < *first_ns)
        *first_ns = range->start_ns;
    if (range->end_ns > *last_ns)
        *last_ns = range->end_ns;
    if (range->end_ns == 0)
        mapping->totals.unfinished++;
    struct name *name = look_up(mapping, range);
    const struct mp_rule *rule = name->rule;
    if (name->end >= 0 && range->end_ns && !(range->traits & MP_RANGE_ECHO))
        MP_TRY(add_end(mapping, name->end, range->end_ns, error));
    if (!rule && name->end < 0 && !name->measures && range->kind != MP_RANGE_MARK)
        name->unmatched++;
    int64_t duration = 0;
    if (!rule || range->kind == MP_RANGE_MARK || range->end_ns == 0 ||
        __builtin_sub_overflow(range->end_ns, range->start_ns, &duration) || duration < 0)
        return MP_OK;
    MP_TRY(MP_GROW(mapping->match, mapping->matches, error));
    int64_t wait_ns = value_of(mapping, record, &rule->waits, -1);
    int64_t direction = range->traits & MP_RANGE_BACKWARD
                            ? MP_BACKWARD
                            : value_of(mapping, record, &rule->direction, -1);
    int64_t iteration = value_of(mapping, record, &rule->iteration, name->capture.iteration);
    mapping->match[mapping->matches++] = (struct match){
        .start_ns = range->start_ns,
        .end_ns = range->end_ns,
        .rule = rule,
        .thread = range->thread,
        .iteration = iteration < 0 || iteration > INT32_MAX ? -1 : (int32_t)iteration,
        .layer = value_of(mapping, record, &rule->layer, name->capture.layer),
        .tokens = value_of(mapping, record, &rule->tokens, -1),
        .bytes = value_of(mapping, record, &rule->bytes, -1),
        .wait_ns = wait_ns < 0          ? 0
                   : wait_ns < duration ? wait_ns
                                        : duration,
        .origin_ns = range->traits & MP_RANGE_ECHO ? (int64_t)range->value : range->start_ns,
        .original = NO_ORIGINAL,
        .traits = range->traits,
        .level = range->level,
        .phase = (uint8_t)(rule->phase == MP_PHASES ? name->capture.phase : rule->phase),
        .direction =
            (uint8_t)(direction == MP_FORWARD || direction == MP_BACKWARD ? direction
                                                                          : MP_NO_DIRECTION)};
    return MP_OK;
}

/* Names and schemas may stand behind what refers to them in another thread's records: two rounds.
 */
static int read_spool(struct mp_mapping *mapping, bool ranges, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    int64_t first_ns = 0, last_ns = 0;
    int got;
    MP_TRY(mp_spool_open(mapping->path, &reader, error));
    mapping->totals.header = *mp_spool_header(reader);
    while ((got = mp_spool_next(reader, &record, error)) == 1) {
        if (ranges && record.type == MP_SPOOL_RANGE)
            MP_TRY(keep_range(mapping, &record, &first_ns, &last_ns, error));
        else if (!ranges && record.type == MP_SPOOL_NAME)
            MP_TRY(keep_name(mapping, &record, error));
        else if (!ranges && record.type == MP_SPOOL_SCHEMA)
            MP_TRY(mp_schemas_add(mapping->schemas, &record, error));
        else if (!ranges && record.type == MP_SPOOL_NUMBER)
            keep_number(mapping, &record);
        else if (!ranges && record.type == MP_SPOOL_TEXT &&
                 !strcmp(record.as.text.name, MP_LAUNCHED_RUN))
            snprintf(mapping->totals.launch, sizeof mapping->totals.launch, "%s",
                     record.as.text.value);
        else if (!ranges && record.type == MP_SPOOL_END)
            mapping->totals.ended = true;
    }
    if (last_ns > first_ns)
        mapping->totals.seconds = ((double)last_ns - (double)first_ns) / 1e9;
    return got;
}

/* ---- making spans of them ---- */

static int compare_matches(const void *left, const void *right) {
    const struct match *a = left, *b = right;
    return MP_ORDER(a->start_ns, b->start_ns) ?: MP_ORDER(b->end_ns, a->end_ns)
           ?: MP_ORDER(a->level, b->level);
}

bool mp_mapping_of_model(int phase) {
    return phase == MP_PHASE_EMBED || phase == MP_PHASE_ATTENTION || phase == MP_PHASE_GATE ||
           phase == MP_PHASE_DISPATCH || phase == MP_PHASE_EXPERT || phase == MP_PHASE_COMBINE ||
           phase == MP_PHASE_SHARED || phase == MP_PHASE_WEIGHTS || phase == MP_PHASE_HEAD;
}

bool mp_mapping_of_exchange(int phase) {
    return phase == MP_PHASE_DISPATCH || phase == MP_PHASE_COMBINE || phase == MP_PHASE_FETCH ||
           phase == MP_PHASE_REDUCE || phase == MP_PHASE_ALLREDUCE || phase == MP_PHASE_WAIT;
}

/* Leaves of ends in a row, between which the model does nothing, the last.  A program whose model
 * no rule matches keeps them all. */
static void join_ends(struct mp_mapping *mapping) {
    size_t kept = 0, next = 0, models = 0;
    mp_sort_integers(mapping->end_ns, (int64_t)mapping->ends);
    for (size_t i = 0; i < mapping->matches; i++)
        models += mp_mapping_of_model(mapping->match[i].phase);
    if (models == 0)
        return;
    for (size_t i = 0; i < mapping->ends; i++) {
        bool worked = false;
        for (; next < mapping->matches && mapping->match[next].start_ns < mapping->end_ns[i];
             next++)
            worked = worked || mp_mapping_of_model(mapping->match[next].phase);
        kept += worked || kept == 0;
        mapping->end_ns[kept - 1] = mapping->end_ns[i];
    }
    mapping->ends = kept;
}

/* Iterations from the ranges that end them, where none has a range of its own; the first begins
 * with the first match. */
static int add_iterations(struct mp_mapping *mapping, struct mp_error *error) {
    static const struct mp_rule rule = {.phase = MP_PHASE_ITERATION};
    if (mapping->matches == 0 ||
        MP_ANY(i, mapping->matches, mapping->match[i].phase == MP_PHASE_ITERATION))
        return MP_OK;
    int64_t start_ns = mapping->match[0].start_ns;
    const uint32_t thread = mapping->match[0].thread;
    join_ends(mapping);
    for (size_t i = 0; i < mapping->ends; i++) {
        if (mapping->end_ns[i] <= start_ns)
            continue;
        MP_TRY(MP_GROW(mapping->match, mapping->matches, error));
        mapping->match[mapping->matches++] = (struct match){.start_ns = start_ns,
                                                            .end_ns = mapping->end_ns[i],
                                                            .rule = &rule,
                                                            .thread = thread,
                                                            .iteration = -1,
                                                            .layer = -1,
                                                            .tokens = -1,
                                                            .bytes = -1,
                                                            .original = NO_ORIGINAL,
                                                            .phase = MP_PHASE_ITERATION,
                                                            .direction = MP_NO_DIRECTION};
        start_ns = mapping->end_ns[i];
    }
    MP_SORT(mapping->match, mapping->matches, compare_matches);
    return MP_OK;
}

/* ---- echoes ---- */

struct origin {
    const struct mp_rule *rule;
    int64_t start_ns;
    size_t match;
};

static int compare_origins(const void *left, const void *right) {
    const struct origin *a = left, *b = right;
    if (a->rule != b->rule)
        return (uintptr_t)a->rule < (uintptr_t)b->rule ? -1 : 1;
    return MP_ORDER(a->start_ns, b->start_ns);
}

/* Finds the range that each echo is of. */
static int find_originals(struct mp_mapping *mapping, struct mp_error *error) {
    size_t origins = 0;
    MP_AUTO(memory) struct origin *origin = NULL;
    MP_TRY(MP_NEW(origin, mapping->matches + 1, error));
    for (size_t i = 0; i < mapping->matches; i++)
        if (!match_is_echo(&mapping->match[i]))
            origin[origins++] =
                (struct origin){mapping->match[i].rule, mapping->match[i].start_ns, i};
    if (origins > 0 && origins < mapping->matches)
        MP_SORT(origin, origins, compare_origins);
    for (size_t i = 0; origins > 0 && i < mapping->matches; i++) {
        struct match *match = &mapping->match[i];
        const struct origin key = {match->rule, match->origin_ns, 0};
        const struct origin *found =
            match_is_echo(match) ? bsearch(&key, origin, origins, sizeof key, compare_origins)
                                 : NULL;
        if (!found)
            continue;
        match->original = found->match;
        if (match->traits & MP_RANGE_DEVICE)
            mapping->match[found->match].has_device[match_is_backward(match)] = true;
    }
    return MP_OK;
}

/* Echoes are of the layer and iteration of their ranges, and work on the same tokens.  What has a
 * way back is forward. */
static void inherit(struct mp_mapping *mapping) {
    for (size_t i = 0; i < mapping->matches; i++) {
        const struct match *match = &mapping->match[i];
        struct match *original =
            match->original == NO_ORIGINAL ? NULL : &mapping->match[match->original];
        if (original && match_is_backward(match) && original->direction == MP_NO_DIRECTION)
            original->direction = MP_FORWARD;
    }
    for (size_t i = 0; i < mapping->matches; i++) {
        struct match *match = &mapping->match[i];
        if (match->original == NO_ORIGINAL)
            continue;
        const struct match *original = &mapping->match[match->original];
        match->layer = original->layer;
        match->iteration = original->iteration;
        match->tokens = original->tokens;
        match->bytes = original->bytes;
        match->dropped = match->dropped || original->dropped;
        if (!match_is_backward(match))
            match->direction = original->direction;
    }
}

/* Iterations follow each other, also on a GPU: of several streams the one that begins first stands
 * for each. */
static void drop_beside(struct mp_mapping *mapping) {
    const struct match *current = NULL;
    for (size_t i = 0; i < mapping->matches; i++) {
        struct match *match = &mapping->match[i];
        if (match->phase != MP_PHASE_ITERATION || match->dropped ||
            match_is_replaced(mapping, match))
            continue;
        match->dropped =
            current && (match->start_ns < current->end_ns ||
                        (match_is_echo(match) && match->iteration == current->iteration));
        current = match->dropped ? current : match;
    }
}

/* Numbers the iterations and gives the others theirs. */
static void place_in_iterations(struct mp_mapping *mapping) {
    const struct match *current = NULL;
    int32_t next = 0;
    for (size_t i = 0; i < mapping->matches; i++) {
        struct match *match = &mapping->match[i];
        if (match->original != NO_ORIGINAL)
            continue;
        if (match->phase == MP_PHASE_ITERATION) {
            if (current && match->start_ns < current->end_ns) {
                match->dropped = true; /* one inside another, or of a second thread */
                continue;
            }
            if (match->iteration < 0)
                match->iteration = next;
            next = match->iteration < INT32_MAX ? match->iteration + 1 : INT32_MAX;
            current = match;
        } else if (match->iteration < 0 && match->rule->iteration.source != MP_RULE_COUNT &&
                   current && match->start_ns < current->end_ns) {
            match->iteration = current->iteration;
        }
    }
}

/* Until when each thread is inside a span, and has waited there. */
struct busy {
    uint32_t thread;
    int64_t until_ns, waited_ns;
    size_t span;
    bool lacks_tokens; /* it has those of what lies in it */
};

/* Operations in flight, and garbage that is collected in the middle of any phase. */
static bool is_beside(const struct match *match) {
    return match->rule->in_flight || match->phase == MP_PHASE_COLLECT;
}

/* Whether a range waits inside of a span that is not all waiting; what a GPU did is left whole. */
static bool waits_in(const struct mp_mapping *mapping, const struct match *match,
                     const struct busy *busy) {
    const struct match *span = &mapping->match[busy->span];
    return match->wait_ns > 0 && span->wait_ns == 0 && match->start_ns >= busy->waited_ns &&
           !(span->traits & MP_RANGE_DEVICE) && !match_is_replaced(mapping, span) &&
           !match_is_replaced(mapping, match);
}

static int drop_enclosed(struct mp_mapping *mapping, struct mp_error *error) {
    MP_AUTO(memory) struct busy *busy = NULL;
    int threads = 0;
    MP_TRY(MP_NEW(busy, THREADS_LIMIT, error));
    for (size_t i = 0; i < mapping->matches; i++) {
        struct match *match = &mapping->match[i];
        if (match->phase == MP_PHASE_ITERATION || is_beside(match))
            continue;
        if (match->original != NO_ORIGINAL && mapping->match[match->original].dropped) {
            match->dropped = true; /* as what it echoes */
            continue;
        }
        const int t = MP_PLACE(b, threads, busy[b].thread == match->thread);
        if (t == threads && threads < THREADS_LIMIT)
            busy[threads++] = (struct busy){match->thread, INT64_MIN, INT64_MIN, 0, false};
        if (t == THREADS_LIMIT)
            continue;
        if (match->end_ns > busy[t].until_ns) {
            busy[t] = (struct busy){match->thread, match->end_ns, INT64_MIN, i, match->tokens < 0};
        } else if (waits_in(mapping, match, &busy[t])) {
            match->outer = busy[t].span + 1;
            busy[t].waited_ns = match->end_ns;
        } else {
            match->dropped = true;
            struct match *span = &mapping->match[busy[t].span];
            if (busy[t].lacks_tokens && match->tokens >= 0 && match->phase == span->phase)
                span->tokens = (span->tokens < 0 ? 0 : span->tokens) + match->tokens;
        }
    }
    return MP_OK;
}

/* Layers and iterations that are counted. */
static int count_up(struct mp_mapping *mapping, struct mp_error *error) {
    const struct mp_rules *rules = mapping->rules;
    struct counter {
        int64_t iterations, layers;
        int32_t iteration;
    };
    MP_AUTO(memory) struct counter *counter = NULL;
    MP_TRY(MP_NEW(counter, (size_t)rules->count + 1, error));
    for (size_t i = 0; i < mapping->matches; i++) {
        struct match *match = &mapping->match[i];
        ptrdiff_t number = match->rule - rules->rule;
        const struct match *outer = match->outer ? &mapping->match[match->outer - 1] : NULL;
        if (outer && outer->layer >= 0 && match->rule->layer.source == MP_RULE_COUNT) {
            match->layer = outer->layer;
            continue;
        }
        if (match->dropped || match->original != NO_ORIGINAL || number < 0 ||
            number >= rules->count)
            continue;
        struct counter *own = &counter[number];
        if (match->rule->iteration.source == MP_RULE_COUNT && match->iteration < 0)
            match->iteration = (int32_t)own->iterations++;
        if (match->iteration != own->iteration)
            own->layers = 0;
        own->iteration = match->iteration;
        if (match->rule->layer.source == MP_RULE_COUNT)
            match->layer = own->layers++;
    }
    return MP_OK;
}

enum { PIECES = 16 };

/* Tokens are of the piece that works on them: of a rule's spans of a direction the same one, the
 * longest. */
static int give_tokens(struct mp_mapping *mapping, struct mp_error *error) {
    const struct mp_rules *rules = mapping->rules;
    MP_AUTO(memory) double(*seconds)[2][PIECES] = NULL;
    MP_TRY(MP_NEW(seconds, (size_t)rules->count + 1, error));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < mapping->matches; i++) {
            struct match *match = &mapping->match[i];
            const struct match *span = match->piece ? &mapping->match[match->outer - 1] : match;
            if (!span->rest)
                continue;
            double *own = seconds[match->rule - rules->rule][match->direction == MP_BACKWARD];
            if (pass == 0 && match->piece < PIECES)
                own[match->piece] += (double)(match->end_ns - match->start_ns);
            int longest = 0, last = mapping->match[span->rest - 1].piece;
            for (int piece = 1; piece < PIECES && piece <= last; piece++)
                longest = own[piece] > own[longest] ? piece : longest;
            if (pass == 1 && match->tokens > 0 && match->piece != longest)
                match->tokens = 0;
        }
    return MP_OK;
}

/* What lies around the waiting in a span is its work: the span is cut. */
static int cut_around_waits(struct mp_mapping *mapping, struct mp_error *error) {
    const size_t matches = mapping->matches;
    for (size_t i = 0; i < matches; i++) {
        if (!mapping->match[i].outer)
            continue;
        MP_TRY(MP_GROW(mapping->match, mapping->matches, error));
        const struct match *wait = &mapping->match[i];
        struct match *span = &mapping->match[wait->outer - 1];
        struct match *last = span->rest ? &mapping->match[span->rest - 1] : span;
        struct match *next = &mapping->match[mapping->matches++];
        *next = *last;
        next->start_ns = wait->end_ns;
        last->end_ns = wait->start_ns;
        next->outer = wait->outer;
        next->rest = 0;
        next->piece++;
        span->rest = mapping->matches;
    }
    return mapping->matches > matches ? give_tokens(mapping, error) : MP_OK;
}

static void sum_up(struct mp_mapping *mapping) {
    struct mp_mapping_totals *totals = &mapping->totals;
    bool has_combines = false;
    totals->last = -1;
    for (size_t i = 0; i < mapping->matches; i++) {
        const struct match *match = &mapping->match[i];
        const bool is_span = match_is_span(mapping, match);
        totals->enclosed += match->dropped;
        totals->spans += is_span;
        totals->combines += is_span && match->by_order && match->phase == MP_PHASE_COMBINE;
        totals->counted += is_span && !match->by_order && match->phase == MP_PHASE_DISPATCH &&
                           match->rule->layer.source == MP_RULE_COUNT;
        has_combines = has_combines || (is_span && match->phase == MP_PHASE_COMBINE);
        totals->of_model += is_span && mp_mapping_of_model(match->phase);
        if (!is_span || match->phase != MP_PHASE_ITERATION)
            continue;
        if (totals->iterations++ == 0 || match->iteration < totals->first)
            totals->first = match->iteration;
        if (match->iteration > totals->last)
            totals->last = match->iteration;
    }
    totals->counted = has_combines ? 0 : totals->counted;
}

static int fill(struct mp_mapping *mapping, struct mp_error *error) {
    MP_TRY(mp_schemas_create(&mapping->schemas, error));
    MP_TRY(read_spool(mapping, false, error));
    MP_TRY(read_spool(mapping, true, error));
    MP_SORT(mapping->match, mapping->matches, compare_matches);
    if (mapping->ends > 0)
        MP_TRY(add_iterations(mapping, error));
    MP_TRY(find_originals(mapping, error));
    place_in_iterations(mapping);
    MP_TRY(drop_enclosed(mapping, error));
    MP_TRY(count_up(mapping, error));
    inherit(mapping);
    drop_beside(mapping);
    MP_TRY(mapping_tell_combines(mapping, error));
    MP_TRY(cut_around_waits(mapping, error));
    sum_up(mapping);
    return MP_OK;
}

int mp_mapping_create(const char *path, const struct mp_rules *rules, struct mp_mapping **mapping,
                      struct mp_error *error) {
    struct mp_mapping *made = calloc(1, sizeof *made);
    if (made)
        made->path = mp_arena_text(&made->texts, path);
    if (!made || !made->path) {
        mp_mapping_destroy(made);
        return mp_no_memory(error);
    }
    made->rules = rules;
    int code = fill(made, error);
    if (code)
        mp_mapping_destroy(made);
    else
        *mapping = made;
    return code;
}

bool mp_mapping_next_wait(const struct mp_mapping *mapping, size_t *next,
                          struct mp_mapping_wait *wait) {
    while (*next < mapping->matches) {
        const struct match *match = &mapping->match[(*next)++];
        const ptrdiff_t rule = match->rule - mapping->rules->rule;
        if (!match_is_span(mapping, match) || rule < 0 || rule >= mapping->rules->count ||
            match->rule->waits.source != MP_RULE_CONSTANT)
            continue;
        *wait =
            (struct mp_mapping_wait){(int)rule, match->iteration, match->start_ns, match->end_ns};
        return true;
    }
    return false;
}

/* ---- writing ---- */

static int write_streams(struct spool_writer *writer, struct mp_error *error) {
    static const char *const names[] = {"compute", "comm"};
    for (int stream = 0; stream < 2; stream++) {
        const struct mp_spool_record record = {.type = MP_SPOOL_STREAM,
                                               .as.stream = {stream, 0, names[stream]}};
        MP_TRY(spool_writer_add(writer, &record, error));
    }
    return MP_OK;
}

static int write_spans(struct spool_writer *writer, const struct mp_mapping *mapping,
                       struct mp_error *error) {
    for (size_t i = 0; i < mapping->matches; i++) {
        const struct match *match = &mapping->match[i];
        if (!match_is_span(mapping, match))
            continue;
        const struct mp_spool_record record = {
            .type = MP_SPOOL_SPAN,
            .as.span = {
                .start_ns = match->start_ns,
                .end_ns = match->end_ns,
                .wait_ns = match->wait_ns,
                .cpu_ns = -1,
                .tokens = match->tokens,
                .bytes = match->bytes,
                .flops = -1,
                .iteration = match->iteration,
                .layer = match->layer < 0 || match->layer > INT16_MAX ? -1 : (int16_t)match->layer,
                .phase = match->phase,
                .direction = match->direction & 3,
                .stream = is_beside(match)}};
        MP_TRY(spool_writer_add(writer, &record, error));
    }
    return MP_OK;
}

static int write_loads(struct spool_writer *writer, const struct mp_mapping *mapping,
                       const struct mp_mapped *as, struct mp_error *error) {
    const struct mp_record_loads *loads = as->loads;
    if (loads->experts > SPOOL_EXPERTS)
        return mp_fail(error, MP_ELIMIT, "loads of %d experts; a record has room for %d",
                       loads->experts, SPOOL_EXPERTS);
    for (int i = 0; i < loads->iterations; i++) {
        const int64_t number = loads->iteration[i];
        if (number < mapping->totals.first || number > mapping->totals.last)
            continue;
        for (int layer = 0; layer < loads->layers; layer++) {
            const struct mp_spool_record record = {
                .type = MP_SPOOL_LOAD,
                .as.load = {.iteration = number,
                            .layer = layer,
                            .experts = loads->experts,
                            .routes = mp_record_loads_of(loads, i, layer, as->rank)}};
            MP_TRY(spool_writer_add(writer, &record, error));
        }
    }
    return MP_OK;
}

/* What of a spool comes into the mapped one: of a collector of GPU work only that its process was
 * there, the store takes its records from its own file. */
static bool is_copied(const struct mp_mapping *mapping, enum mp_spool_type type) {
    static const char ending[] = MP_DEVICE_ENDING;
    size_t length = strlen(mapping->path);
    return type != MP_SPOOL_END &&
           (length < sizeof ending ||
            strcmp(mapping->path + length - (sizeof ending - 1), ending) != 0);
}

static void change_header(struct mp_spool_header *header, const struct mp_mapped *as) {
    header->rank = as->rank;
    header->ranks = as->ranks;
    header->node = as->node > 0 ? as->node : header->node;
    header->realtime_ns = as->realtime_ns ? as->realtime_ns : header->realtime_ns;
    if (as->host)
        snprintf(header->host, sizeof header->host, "%s", as->host);
}

/* Everything of the spool that was read; its end comes after the spans. */
static int copy_spool(struct spool_writer *writer, const struct mp_mapping *mapping,
                      const struct mp_mapped *as, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    uint8_t end[4096];
    size_t size, end_size = 0;
    int got;
    MP_TRY(mp_spool_open(mapping->path, &reader, error));
    const void *bytes = mp_spool_bytes(reader, &size);
    void *copied = NULL;
    MP_TRY(spool_writer_copy(writer, bytes, size, &copied, error));
    change_header((void *)((uint8_t *)copied + sizeof(struct spool_head)), as);
    MP_TRY(write_streams(writer, error));
    while ((got = mp_spool_next(reader, &record, error)) == 1) {
        bytes = mp_spool_bytes(reader, &size);
        if (is_copied(mapping, record.type)) {
            MP_TRY(spool_writer_copy(writer, bytes, size, NULL, error));
        } else if (record.type == MP_SPOOL_END && size <= sizeof end) {
            memcpy(end, bytes, size);
            end_size = size;
        }
    }
    MP_TRY(got);
    MP_TRY(write_spans(writer, mapping, error));
    MP_TRY(clock_samples_write(as->sample, as->samples, writer, error));
    MP_TRY(write_loads(writer, mapping, as, error));
    return end_size > 0 ? spool_writer_copy(writer, end, end_size, NULL, error) : MP_OK;
}

int mp_mapping_write(const struct mp_mapping *mapping, const char *path, const struct mp_mapped *as,
                     struct mp_error *error) {
    struct spool_writer writer;
    MP_TRY(spool_writer_create(&writer, path, error));
    int code = copy_spool(&writer, mapping, as, error);
    int closed = spool_writer_close(&writer, code ? NULL : error);
    return code ? code : closed;
}
