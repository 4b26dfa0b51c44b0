/* What rules are proposed by: fields of payloads, what recurs, what meets, what lies in what. */
#include "tests/harness/record/ranges.h"

/* ---- fields of payloads ---- */

/* A schema of whole numbers in all fields that rules can take. */
static void ranges_schema(struct ranges *ranges) {
    enum { INT64 = 17, STATIC = 1, SCHEMA = 1 << 24 }; /* NVTX's numbers */
    static const char *const fields[] = {"iteration", "layer", "tokens", "bytes"};
    static uint8_t entries[1024];
    uint8_t *at = entries;
    size_t left = sizeof entries;
    for (int i = 0; i < 4; i++)
        assert_true(mp_schema_put_entry(
            &at, &left, &(struct mp_schema_entry){.type = INT64, .name = fields[i]}));
    mp_record_add(ranges->thread,
                  &(struct mp_spool_record){.type = MP_SPOOL_SCHEMA,
                                            .as.schema = {.id = SCHEMA,
                                                          .type = STATIC,
                                                          .bytes = 4 * sizeof(int64_t),
                                                          .entries = 4,
                                                          .name = "",
                                                          .entry = entries,
                                                          .entry_bytes = sizeof entries - left}});
}

static void ranges_add_fields(struct ranges *ranges, const char *name, int64_t start_ns) {
    const struct {
        struct spool_blob_head head;
        int64_t number[4];
    } payload = {{.schema = 1 << 24, .size = 4 * sizeof(int64_t)}, {1, 2, 3, 4}};
    const struct mp_range is = {.start_ns = RANGES_T0 + start_ns,
                                .end_ns = RANGES_T0 + start_ns + 5,
                                .thread = 1,
                                .name = ranges_name(ranges, name, MP_NAME_STRING),
                                .payloads = 1};
    mp_record_add(ranges->thread,
                  &(struct mp_spool_record){.type = MP_SPOOL_RANGE,
                                            .as.range = {.is = is,
                                                         .payload = (const uint8_t *)&payload,
                                                         .payload_bytes = sizeof payload}});
}

enum payload { NOTHING, VALUE, FIELDS };

/* What a rule takes a number from: "-" for none. */
static const char *source_of(const struct mp_rule_value *value) {
    switch (value->source) {
    case MP_RULE_COUNT:
        return "count";
    case MP_RULE_FIELD:
        return *value->field ? value->field : "payload";
    default:
        return "-";
    }
}

static const struct {
    const char *name;
    enum payload payload;
    const char *iteration, *layer, *tokens, *bytes, *direction;
} taken[] = {
    {"experts", FIELDS, "iteration", "layer", "tokens", "-", "forward"},
    {"all_to_all", FIELDS, "iteration", "layer", "tokens", "bytes", "forward"},
    {"all_reduce", FIELDS, "iteration", "-", "-", "bytes", "-"},
    {"optimizer", FIELDS, "iteration", "-", "-", "-", "-"},
    {"embed", FIELDS, "iteration", "-", "-", "-", "forward"},
    {"lm_head", NOTHING, "-", "-", "-", "-", "forward"},
    {"router backward", FIELDS, "iteration", "layer", "tokens", "-", "backward"},
    {"step %d layer 7 ffn", FIELDS, "-", "-", "tokens", "-", "forward"},
    {"mlp", VALUE, "-", "count", "payload", "-", "forward"},
    {"exchange", VALUE, "-", "count", "-", "payload", "forward"},
    {"topk", VALUE, "-", "count", "-", "-", "forward"},
    {"moe", NOTHING, "-", "count", "-", "-", "forward"},
    {"a2a", NOTHING, "-", "count", "-", "-", "forward"},
};
enum { TAKEN = sizeof taken / sizeof *taken };

RANGES_TEST(what_payloads_have_goes_where_it_counts) {
    char name[64];
    ranges_begin(ranges, 0);
    ranges_schema(ranges);
    for (int64_t i = 0; i < 4 * TAKEN; i++) {
        const enum payload payload = taken[i % TAKEN].payload;
        snprintf(name, sizeof name, taken[i % TAKEN].name, (int)(i / TAKEN));
        if (payload == FIELDS)
            ranges_add_fields(ranges, name, 10 * i);
        else if (payload == VALUE)
            ranges_add_value(ranges, name, 10 * i, 10 * i + 5, 64);
        else
            ranges_add(ranges, "", name, 10 * i, 10 * i + 5, 1);
    }
    ranges_suggest(ranges);
    for (int i = 0; i < TAKEN; i++) {
        snprintf(name, sizeof name, taken[i].name, 3);
        const struct mp_rule *rule = rule_of(ranges, name);
        if (!rule)
            fail_msg("nothing for %s", name);
        assert_string_equal(source_of(&rule->iteration), taken[i].iteration);
        assert_string_equal(source_of(&rule->layer), taken[i].layer);
        assert_string_equal(source_of(&rule->tokens), taken[i].tokens);
        assert_string_equal(source_of(&rule->bytes), taken[i].bytes);
        assert_string_equal(rule->direction.source == MP_RULE_UNSAID  ? "-"
                            : rule->direction.constant == MP_BACKWARD ? "backward"
                                                                      : "forward",
                            taken[i].direction);
    }
    assert_contains(ranges->text, "4 ranges, 0.000 s, 1 of 1 processes, with bytes as a payload");
}

/* ---- what ends an iteration, and what is one ---- */

/* Ranges that cover `share` of 1000 ns, with some others inside, `times` in the first rank and
 * `others` in the second one, whose times go on as long. */
static void record_covering(struct ranges *ranges, const char *outer, const char *inner,
                            double share, int times, int others) {
    for (int rank = 0; rank < 2; rank++) {
        const int count = rank ? others : times;
        const int64_t period = 12000 / count;
        ranges_begin(ranges, rank);
        for (int i = 0; i < count; i++) {
            const int64_t begin = i * period, end = begin + (int64_t)((double)period * share);
            ranges_add(ranges, "", outer, begin, end, 1);
            if (inner)
                ranges_add(ranges, "", inner, begin + 1, end - 1, 1);
        }
        ranges_add(ranges, "", rank ? "one" : "other", 11999, 12000, 1);
    }
    ranges_suggest(ranges);
}

static const struct {
    const char *name, *outer, *inner;
    double share;
    int times, others, phase; /* MP_PHASES: none */
} covering[] = {
    {"thrice", "outer", "inner", 0.9, 3, 3, MP_PHASE_ITERATION},
    {"twice is too seldom", "outer", "inner", 0.9, 2, 2, MP_PHASES},
    {"once more on one", "outer", "inner", 0.9, 4, 3, MP_PHASE_ITERATION},
    {"twice more on one", "outer", "inner", 0.9, 5, 3, MP_PHASES},
    {"three quarters of the time", "outer", "inner", 0.75, 4, 4, MP_PHASE_ITERATION},
    {"two thirds of the time", "outer", "inner", 0.66, 4, 4, MP_PHASES},
    {"with nothing inside", "outer", NULL, 0.9, 4, 4, MP_PHASES},
    {"of another name", "the experts", "inner", 0.9, 4, 4, MP_PHASE_EXPERT},
};

RANGES_TEST(what_covers_the_time_is_the_iteration) {
    for (size_t i = 0; i < sizeof covering / sizeof *covering; i++) {
        ranges->ranks = 0;
        record_covering(ranges, covering[i].outer, covering[i].inner, covering[i].share,
                        covering[i].times, covering[i].others);
        const struct mp_rule *rule = rule_of(ranges, covering[i].outer);
        if ((rule ? rule->phase : MP_PHASES) != covering[i].phase)
            fail_msg("%s: %s", covering[i].name, ranges->text);
        unlink(ranges->file);
        unlink(ranges->path[0]);
        unlink(ranges->path[1]);
    }
}

/* Of two that cover it as often the one that began first. */
RANGES_TEST(one_of_two_that_cover_the_time_is_it) {
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < 4; i++) {
        ranges_add(ranges, "", "outer", 1000 * i, 1000 * i + 990, 1);
        ranges_add(ranges, "", "inner", 1000 * i + 1, 1000 * i + 980, 1);
        ranges_add(ranges, "", "flop", 1000 * i + 2, 1000 * i + 9, 1);
    }
    ranges_suggest(ranges);
    assert_int_equal(ranges->rules.count, 1);
    assert_non_null(rule_of(ranges, "outer"));
}

/* A rule's iteration, whatever else is called so and however long it is; a called one before one
 * that covers the time. */
RANGES_TEST(a_known_iteration_is_the_only_one) {
    char text[] = "rules:\n  - {name: Lap, phase: iteration}\n";
    for (int has_rule = 0; has_rule < 2; has_rule++) {
        if (has_rule)
            assert_works(mp_rules_parse("text", text, strlen(text), &ranges->in_use, &error));
        ranges->ranks = 0;
        ranges_begin(ranges, 0);
        for (int64_t i = 0; i < 4; i++) {
            ranges_add(ranges, "", "all", 1000 * i, 1000 * i + 990, 1);
            ranges_add(ranges, "", "train_step", 1000 * i + 1, 1000 * i + 980, 1);
            ranges_add(ranges, "", "Lap", 1000 * i + 2, 1000 * i + 900, 1);
        }
        ranges_suggest(ranges);
        assert_int_equal(ranges->rules.count, 1);
        assert_non_null(rule_of(ranges, has_rule ? "Lap" : "train_step"));
        assert_int_equal(ranges->rules.ends, 0);
        unlink(ranges->file);
        unlink(ranges->path[0]);
    }
}

/* The end that is found, of what two ranks do five times: NULL: none. */
static const char *found_end(struct ranges *ranges, const char *const name[],
                             const int times[][2]) {
    ranges->ranks = 0;
    for (int rank = 0; rank < 2; rank++) {
        ranges_begin(ranges, rank);
        for (int64_t i = 0; i < 10; i++)
            for (int k = 0; name[k]; k++) /* each ends later, and is longer */
                if (i < times[k][rank])
                    ranges_add(ranges, "", name[k], 1000 * i + 100 * k, 1000 * i + 101 * k + 9, 1);
    }
    ranges_suggest(ranges);
    for (int rank = 0; rank < 2; rank++)
        unlink(ranges->path[rank]);
    unlink(ranges->file);
    assert_true(ranges->rules.ends < 2);
    return ranges->rules.ends ? ranges->rules.end[0].name : "none";
}
#define FOUND_END(names, ...) found_end(ranges, names, (const int[][2]){__VA_ARGS__})

RANGES_TEST(iterations_end_with_what_all_do_as_seldom) {
    static const char *const names[] = {"a", "b", "c", NULL},
                             *const steps[] = {"optimizer a", "optimizer b", "c", NULL},
                             *const steps_back[] = {"optimizer b", "c", "optimizer a", NULL};
    assert_string_equal(FOUND_END(names, {5, 5}, {5, 5}, {5, 5}), "c");
    assert_string_equal(FOUND_END(names, {5, 5}, {5, 5}, {10, 10}), "b");
    assert_string_equal(FOUND_END(names, {10, 10}, {5, 5}, {2, 2}), "b"); /* two are too few */
    assert_string_equal(FOUND_END(names, {10, 10}, {3, 4}, {5, 5}), "c"); /* not on all alike */
    assert_string_equal(FOUND_END(names, {2, 2}, {1, 2}, {2, 2}), "none");
    assert_string_equal(FOUND_END(steps, {5, 5}, {5, 5}, {5, 5}), "optimizer b");
    assert_string_equal(FOUND_END(steps_back, {5, 5}, {5, 5}, {5, 5}), "optimizer a");
    assert_string_equal(FOUND_END(steps, {10, 10}, {1, 1}, {5, 5}), "optimizer a"); /* longest */
    char text[] = "rules: []\niteration-ends:\n  - {name: a}\n";
    assert_works(mp_rules_parse("text", text, strlen(text), &ranges->in_use, &error));
    assert_string_equal(FOUND_END(names, {5, 5}, {5, 5}, {5, 5}), "a"); /* known */
}

/* ---- what meets, what lies in what ---- */

/* With experts the first name of all; what has a name that says something else keeps its phase, and
 * only exchanges wait. */
RANGES_TEST(meetings_are_judged_by_what_is_known) {
    for (int rank = 0; rank < 2; rank++) {
        ranges_begin(ranges, rank);
        for (int64_t i = 0; i < 8; i++) {
            const int64_t at = 1000 * i, late = rank == i % 2 ? 100 : 0;
            const bool apart = i == 7; /* once, the first has gone before the last comes */
            ranges_add(ranges, "", "experts", at, at + 100 + late, 1);
            ranges_add(ranges, "", "back", at + 100 + late, at + 210, 1);
            ranges_add(ranges, "", "all_gather", apart ? at + 220 + 12 * rank : at + 220 + late,
                       apart ? at + 230 + 5 * rank : at + 330, 1);
            ranges_add(ranges, "", "attention", at + 340 + late, at + 450, 1);
            ranges_add(ranges, "", "there", at + 460 + late, at + 570, 1);
        }
    }
    ranges_suggest(ranges);
    assert_int_equal(rule_of(ranges, "back")->phase, MP_PHASE_COMBINE);
    assert_int_equal(rule_of(ranges, "there")->phase, MP_PHASE_DISPATCH);
    const struct mp_rule *gather = rule_of(ranges, "all_gather"),
                         *attention = rule_of(ranges, "attention");
    assert_numbers(gather->phase, MP_PHASE_FETCH, gather->waits.source, MP_RULE_CONSTANT,
                   attention->phase, MP_PHASE_ATTENTION, attention->waits.source, MP_RULE_UNSAID);
}

/* Only a guess about experts gives way to experts inside, at any depth; and one about an exchange
 * to an exchange that a rule in use knows. */
RANGES_TEST(callers_give_way_to_what_says_more) {
    char text[] = "rules:\n  - {name: zap, phase: combine}\n";
    assert_works(mp_rules_parse("text", text, strlen(text), &ranges->in_use, &error));
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < 4; i++) {
        const int64_t at = 1000 * i;
        ranges_add(ranges, "", "moe layer", at, at + 300, 1);
        ranges_add(ranges, "", "frob", at + 10, at + 290, 1);
        ranges_add(ranges, "", "experts", at + 20, at + 280, 1);
        ranges_add(ranges, "", "attention", at + 400, at + 500, 1);
        ranges_add(ranges, "", "mlp", at + 410, at + 490, 1);
        ranges_add(ranges, "", "a2a", at + 600, at + 700, 1);
        ranges_add(ranges, "", "zap", at + 610, at + 690, 1);
    }
    struct mp_suggestion *suggestion = ranges_judge(ranges);
    assert_int_equal(mp_suggestion_guesses(suggestion), 3);
    mp_suggestion_destroy(suggestion);
    ranges_suggest(ranges);
    static const char *const kept[] = {"experts", "attention", "mlp", "zap"};
    for (int i = 0; i < 4; i++)
        assert_non_null(rule_of(ranges, kept[i]));
    assert_null(rule_of(ranges, "moe layer"));
    assert_null(rule_of(ranges, "a2a"));
}

/* Of one domain alone, too; ends of one name in several are several. */
RANGES_TEST(domains_are_told_apart) {
    struct mp_rule_capture capture;
    char text[] = "rules: []\niteration-ends:\n  - {name: x, domain: a}\n  - {name: x, domain: b}\n"
                  "  - {name: x}\n";
    ranges_begin(ranges, 0);
    ranges_add(ranges, "a", "experts", 0, 5, 1);
    ranges_add(ranges, "a", "MPI_Alltoallv", 5, 9, 1);
    ranges_suggest(ranges);
    assert_null(rule_of(ranges, "experts"));
    assert_non_null(mp_rules_find(&ranges->rules, "experts", "a", &capture));
    assert_int_equal(mp_rules_find(&ranges->rules, "MPI_Alltoallv", "a", &capture)->waits.source,
                     MP_RULE_CONSTANT); /* as its guess has it */
    unlink(ranges->file);
    ranges->ranks = 0;
    assert_works(mp_rules_parse("text", text, strlen(text), &ranges->in_use, &error));
    ranges_begin(ranges, 1);
    ranges_add(ranges, "a", "x", 0, 5, 1);
    ranges_add(ranges, "b", "x", 5, 9, 1);
    ranges_suggest(ranges);
    assert_int_equal(ranges->rules.ends, 3);
}

RANGES_TEST(a_rule_may_take_the_phase_from_the_name) {
    char said[1000] = "", text[] = "rules:\n  - {name: \"{phase} {layer}\"}\n";
    assert_works(mp_rules_parse("text", text, strlen(text), &ranges->in_use, &error));
    ranges_begin(ranges, 0);
    ranges_add(ranges, "", "gate 3", 0, 5, 1);
    ranges_say(ranges, said, sizeof said);
    assert_contains(said, "1/1   gate       gate ");
}
