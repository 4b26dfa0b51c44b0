/* What recorded programs call their ranges, and the rules that are proposed for them: as files that
 * are read back, and give the phases. */
#include "tests/harness/record/ranges.h"

/* ---- names of frameworks ---- */

struct known_name {
    const char *domain, *name;
    int phase; /* MP_PHASES: none is proposed */
    int direction;
};

static const struct known_name known[] = {
    /* ready-made rules say them */
    {"", "megatron.core.transformer.transformer_layer._forward_mlp.mlp", MP_PHASE_EXPERT,
     MP_FORWARD},
    {"DeepSpeed", "DeepSpeedEngine.allreduce_gradients", MP_PHASE_ALLREDUCE, MP_BACKWARD},
    {"", "Optimizer.step#AdamW.step", MP_PHASE_OPTIMIZER, MP_NO_DIRECTION},
    {"NCCL", "ncclAllGather", MP_PHASE_FETCH, MP_NO_DIRECTION},
    /* guesses */
    {"", "nn.Module: MixtralSparseMoeBlock_1", MP_PHASE_EXPERT, MP_FORWARD},
    {"", "nn.Module: LlamaAttention_0", MP_PHASE_ATTENTION, MP_FORWARD},
    {"", "nn.Module: TopKRouter_0", MP_PHASE_GATE, MP_FORWARD},
    {"", "nn.Module: Embedding_0", MP_PHASE_EMBED, MP_FORWARD},
    {"", "_AllToAll, seq = 3", MP_PHASE_DISPATCH, MP_FORWARD},
    {"", "_AllToAllBackward, seq = 3", MP_PHASE_DISPATCH, MP_BACKWARD},
    {"", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
     MP_PHASE_ALLREDUCE, MP_NO_DIRECTION},
    {"", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", MP_PHASE_DISPATCH, MP_FORWARD},
    {"", "MPI_Alltoallv", MP_PHASE_DISPATCH, MP_FORWARD},
    {"", "MPI_Barrier", MP_PHASE_WAIT, MP_NO_DIRECTION},
    {"", "ucc:all_reduce", MP_PHASE_ALLREDUCE, MP_NO_DIRECTION},
    {"", "aten::scaled_dot_product_attention", MP_PHASE_ATTENTION, MP_FORWARD},
    {"", "moe dispatch", MP_PHASE_DISPATCH, MP_FORWARD},
    {"", "moe combine", MP_PHASE_COMBINE, MP_FORWARD},
    {"", "Top2Gate backward", MP_PHASES, MP_NO_DIRECTION},
    {"", "gate bwd", MP_PHASE_GATE, MP_BACKWARD},
    {"", "save_checkpoint", MP_PHASE_CHECKPOINT, MP_NO_DIRECTION},
    /* what any module uses, and what nobody knows */
    {"", "aten::mm", MP_PHASES, MP_NO_DIRECTION},
    {"", "aten::permute", MP_PHASES, MP_NO_DIRECTION},
    {"", "autograd::engine::evaluate_function: MmBackward0", MP_PHASES, MP_NO_DIRECTION},
    {"", "aggregate_statistics", MP_PHASES, MP_NO_DIRECTION},
    {"", "cudaStreamSynchronize", MP_PHASES, MP_NO_DIRECTION},
    {"", "frobnicate", MP_PHASES, MP_NO_DIRECTION},
};
enum { KNOWN = sizeof known / sizeof *known };

/* The phase that the suggestion's file has for a range; its direction where that is said. */
static void assert_phase(const struct mp_rules *rules, const struct known_name *is) {
    struct mp_rule_capture capture;
    const struct mp_rule *rule = mp_rules_find(rules, is->name, is->domain, &capture);
    int phase = rule ? rule->phase : MP_PHASES;
    if (phase != is->phase)
        fail_msg("%s: %s, not %s", is->name, mp_phase_name((enum mp_phase)phase),
                 mp_phase_name((enum mp_phase)is->phase));
    if (is->direction != MP_NO_DIRECTION && rule->direction.constant != is->direction)
        fail_msg("%s: goes the wrong way", is->name);
    if (is->direction == MP_BACKWARD) /* the last layer comes first */
        assert_int_not_equal(rule->layer.source, MP_RULE_COUNT);
}

RANGES_TEST(names_of_frameworks_have_their_phase) {
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < KNOWN; i++)
        ranges_add(ranges, known[i].domain, known[i].name, 100 * i, 100 * i + 50, 1);
    ranges_suggest(ranges);
    for (int i = 0; i < KNOWN; i++)
        assert_phase(&ranges->rules, &known[i]);
    assert_int_equal(ranges->rules.ends, 1); /* two ready-made files have it */
    assert_contains(ranges->text, "\"frobnicate\", domain: \"\", phase: }  # 1 range,");
}

/* ---- structure ---- */

enum { STEPS = 6, LAYERS = 3, BUSY = 1000, WORK = 700, PERIOD = 20000 };

/* What one rank does in an iteration: what all begin and end together, then for each layer some
 * work and a wait for the others, in a range of its own, then the last. */
static int64_t record_iteration(struct ranges *ranges, int rank, int64_t began, bool tells_layer) {
    int64_t now = began + BUSY;
    char name[64];
    ranges_add(ranges, "", "blip", began + 2 * rank, now, 1);
    for (int layer = 0; layer < LAYERS; layer++) {
        const int64_t arrives = began + (layer + 2) * 3 * BUSY + rank;
        snprintf(name, sizeof name, tells_layer ? "frob %d" : "frob", layer);
        ranges_add(ranges, "", name, now, now + BUSY + rank * WORK, 1);
        now += BUSY + rank * WORK;
        ranges_add(ranges, "", "wrap", now, arrives + 1, 1);
        ranges_add(ranges, "", "zap", now, arrives, 1);
        now = arrives + 1;
    }
    ranges_add(ranges, "", "fnord", now, now + 5000, 1);
    return now + 5000;
}

/* Two ranks of which the second works longer; nobody could know the names.  `step`: of a range
 * around each iteration; NULL: there is none. */
static void record_unknown(struct ranges *ranges, const char *step, bool tells_layer) {
    char name[64];
    for (int rank = 0; rank < 2; rank++) {
        ranges_begin(ranges, rank);
        for (int i = 0; i < STEPS; i++) {
            int64_t ends = record_iteration(ranges, rank, i * PERIOD, tells_layer);
            snprintf(name, sizeof name, "%s%d", step ? step : "", i);
            if (step)
                ranges_add(ranges, "", name, i * PERIOD, ends, 1);
        }
    }
}

RANGES_TEST(structure_says_what_names_do_not) {
    struct mp_rule_capture capture;
    record_unknown(ranges, "xyzzy ", true);
    ranges_suggest(ranges);
    const struct mp_rule *rule = mp_rules_find(&ranges->rules, "xyzzy 17", "", &capture);
    assert_non_null(rule);
    assert_int_equal(rule->phase, MP_PHASE_ITERATION);
    assert_int_equal(capture.iteration, 17);
    rule = rule_of(ranges, "zap");
    assert_non_null(rule);
    assert_int_equal(rule->phase, MP_PHASE_WAIT);
    assert_true(rule->waits.constant == INT64_MAX);
    static const char *const others[] = {"frob 1", "blip", "fnord", "wrap"};
    for (int i = 0; i < 4; i++) /* what they do nobody can know */
        assert_null(rule_of(ranges, others[i]));
    assert_contains(ranges->text, "\"frob {layer}\", phase: }", "# 36 ranges, ",
                    "2 of 2 processes, 18 on each, inside xyzzy {iteration}");
    assert_int_equal(ranges->rules.ends, 0);
}

RANGES_TEST(without_a_range_of_iterations_their_end_is_found) {
    record_unknown(ranges, NULL, true);
    ranges_suggest(ranges);
    assert_int_equal(ranges->rules.ends, 1);
    assert_string_equal(ranges->rules.end[0].name, "fnord");
    assert_contains(ranges->text, "\"frob {layer}\"");
}

/* Of two that cover the time the outer one, of two that are called so the longer one. */
RANGES_TEST(one_range_is_the_iteration) {
    for (int called = 0; called < 2; called++) {
        ranges_begin(ranges, called);
        for (int64_t i = 0; i < 4; i++) {
            ranges_add(ranges, "", called ? "iteration" : "outer", 1000 * i, 1000 * i + 990, 1);
            for (int64_t half = 0; half < 2; half++) {
                const int64_t at = 1000 * i + 490 * half;
                ranges_add(ranges, "", called ? "step of two" : "inner", at, at + 480, 1);
                ranges_add(ranges, "", "flop", at, at + 100, 1);
            }
        }
        ranges->ranks = 1; /* each by itself */
        if (called)
            strcpy(ranges->path[0], ranges->path[called]);
        ranges_suggest(ranges);
        assert_int_equal(ranges->rules.count, 1);
        assert_non_null(rule_of(ranges, called ? "iteration" : "outer"));
        assert_int_equal(ranges->rules.rule[0].phase, MP_PHASE_ITERATION);
        unlink(ranges->path[0]);
        unlink(ranges->file);
    }
}

/* What the file makes of the ranges, once somebody has said what frob is. */
RANGES_TEST(a_suggestion_maps_ranges_when_it_is_filled_in) {
    struct mp_mapping *mapping = NULL;
    char extra[] = "rules:\n  - {name: \"frob {layer}\", phase: expert, direction: forward}\n";
    record_unknown(ranges, "xyzzy ", true);
    ranges_suggest(ranges);
    assert_works(mp_rules_parse("extra", extra, strlen(extra), &ranges->rules, &error));
    for (int rank = 0; rank < 2; rank++) {
        assert_works(mp_mapping_create(ranges->path[rank], &ranges->rules, &mapping, &error));
        assert_int_equal(mp_mapping_totals(mapping)->iterations, STEPS);
        assert_int_equal(mp_mapping_totals(mapping)->spans, STEPS + 2 * STEPS * LAYERS);
        assert_int_equal(mp_mapping_totals(mapping)->of_model, STEPS * LAYERS);
        mp_mapping_destroy(mapping);
    }
}

/* Experts inside a range called so, too: it is the inner one that is meant. */
RANGES_TEST(a_layer_with_its_parts_inside_is_left_out) {
    ranges_begin(ranges, 0);
    ranges_add(ranges, "", "experts", -500, -400, 1); /* once, elsewhere */
    for (int64_t i = 0; i < 4; i++) {
        ranges_add(ranges, "", "moe layer", 1000 * i, 1000 * i + 900, 1);
        for (int depth = 0; depth < 3; depth++) /* which call themselves */
            ranges_add(ranges, "", "experts", 1000 * i + 100 + depth, 1000 * i + 700 - depth, 1);
        ranges_add(ranges, "", "late gate", 1000 * i + 710, 1000 * i + 750, 1);
        ranges_add(ranges, "", "mlp", 1000 * i + 920, 1000 * i + 950, 1); /* of a dense layer */
    }
    ranges_suggest(ranges);
    assert_null(rule_of(ranges, "moe layer"));
    assert_non_null(rule_of(ranges, "experts"));
    assert_non_null(rule_of(ranges, "mlp"));
    assert_contains(ranges->text, "holds ranges that say more");
}

/* Two meetings around what is called experts, in a layer of its own. */
RANGES_TEST(meetings_next_to_experts_are_exchanges) {
    for (int rank = 0; rank < 2; rank++) {
        ranges_begin(ranges, rank);
        for (int64_t i = 0; i < 8; i++) {
            const int64_t at = 1000 * i, late = rank == i % 2 ? 200 : 0;
            ranges_add(ranges, "", "frob", at, at + 100 + late, 1);
            ranges_add(ranges, "", "there", at + 100 + late, at + 310, 1);
            ranges_add(ranges, "", "experts", at + 310, at + 400 + late, 1);
            ranges_add(ranges, "", "back", at + 400 + late, at + 610, 1);
            ranges_add(ranges, "", "nicht", at + 620, at + 700 + late, 1);
            ranges_add(ranges, "", "alone", at + 700 + late, at + 910, 1);
            ranges_add(ranges, "", "whole layer", at, at + 950, 1);
        }
    }
    ranges_suggest(ranges);
    assert_int_equal(rule_of(ranges, "there")->phase, MP_PHASE_DISPATCH);
    assert_int_equal(rule_of(ranges, "back")->phase, MP_PHASE_COMBINE);
    assert_int_equal(rule_of(ranges, "alone")->phase, MP_PHASE_WAIT);
    assert_null(rule_of(ranges, "frob"));
}

/* Ranges that do more than to meet, in ranks that have to share their cores: by their names all but
 * experts are exchanges.  Only two are: ranks leave permute before all have come, and leave a2a,
 * which is long, as far apart as they come. */
RANGES_TEST(busy_ranks_meet_where_names_say_so) {
    for (int rank = 0; rank < 2; rank++) {
        ranges_begin(ranges, rank);
        for (int64_t i = 0; i < 60; i++) {
            const int64_t at = 1000 * i, late = rank == i % 2 ? 200 : 0, after = rank * 80;
            ranges_add(ranges, "", "experts", at, at + 100 + late, 1);
            ranges_add(ranges, "", "combine", at + 100 + late, at + 310 + after, 1);
            ranges_add(ranges, "", "all_reduce", at + 500 + late, at + 710 + after, 1);
            ranges_add(ranges, "", "a2a", at + 700 + late / 2, at + 900 + late, 1);
            ranges_add(ranges, "", "permute", at + 400 + late, at + 520 + late - late / 20, 1);
        }
    }
    ranges_suggest(ranges);
    const struct mp_rule *rule = rule_of(ranges, "combine");
    assert_int_equal(rule->waits.source, MP_RULE_CONSTANT);
    rule = rule_of(ranges, "all_reduce");
    assert_int_equal(rule->waits.source, MP_RULE_CONSTANT);
    rule = rule_of(ranges, "permute");
    assert_numbers(rule->phase, MP_PHASE_DISPATCH, rule->waits.source, MP_RULE_UNSAID);
    rule = rule_of(ranges, "a2a");
    assert_int_equal(rule->waits.source, MP_RULE_UNSAID);
}

/* What is known by a rule counts, not what its caller's name looks like. */
RANGES_TEST(callers_of_known_exchanges_are_left_out) {
    char said[4000] = "";
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < 4; i++) {
        ranges_add(ranges, "", "## alltoall_fwd ##", 100 * i, 100 * i + 50, 1);
        ranges_add(ranges, "", "nccl:all_to_all", 100 * i + 10, 100 * i + 40, 1);
        ranges_add(ranges, "", "alltoall alone", 100 * i + 60, 100 * i + 70, 1);
        ranges_add(ranges, "", "a2a inside", 100 * i + 61, 100 * i + 69, 1); /* no better known */
        ranges_add(ranges, "", "attention", 100 * i + 75, 100 * i + 95, 1);
        ranges_add(ranges, "", "nccl:all_reduce", 100 * i + 80, 100 * i + 90, 1);
    }
    ranges_add(ranges, "", "megatron.transformer_layer._forward_mlp.mlp", 500, 600, 1);
    ranges_add(ranges, "", "experts", 510, 590, 1);
    ranges_say(ranges, said, sizeof said);
    assert_contains(said, "expert     megatron.transformer_layer._forward_mlp.mlp\n");
    ranges_suggest(ranges);
    assert_null(rule_of(ranges, "## alltoall_fwd ##"));
    assert_non_null(rule_of(ranges, "nccl:all_to_all"));
    assert_non_null(rule_of(ranges, "alltoall alone"));
    assert_non_null(rule_of(ranges, "attention"));
}

/* As torch's emit_nvtx writes them: neither layers nor iterations. */
RANGES_TEST(numbers_of_operators_say_nothing) {
    char name[64];
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "_AllToAll, seq = %d, op_id = %d", (int)i, (int)(90 + i));
        ranges_add(ranges, "", "nn", 100 * i, 100 * i + 90, 1);
        ranges_add(ranges, "", name, 100 * i + 10, 100 * i + 50, 1);
    }
    ranges_suggest(ranges);
    assert_contains(ranges->text, "{name: \"_AllToAll, seq = *, op_id = *\", phase: "
                                  "dispatch, layer: count, direction: forward}");
}

RANGES_TEST(ranks_may_have_different_names) {
    char said[4000] = "";
    for (int rank = 0; rank < 2; rank++) {
        ranges_begin(ranges, rank);
        for (int64_t i = 0; i < 5; i++) {
            ranges_add(ranges, "", rank ? "rank 1 experts" : "rank 0 experts", 10 * i, 10 * i + 5,
                       1);
            if (rank)
                ranges_add(ranges, "", "only here", 10 * i + 6, 10 * i + 7, 1);
        }
    }
    ranges_say(ranges, said, sizeof said);
    assert_contains(said, "        10     0.000     2/2   expert     rank * experts\n",
                    "         5     0.000     1/2   -          only here\n");
    ranges_suggest(ranges);
    assert_int_equal(ranges->rules.count, 1);
    assert_contains(ranges->text, "2 of 2 processes, 5 on each; a guess", "1 of 2 processes\n");
}

/* ---- many names, hostile names ---- */

RANGES_TEST(ten_thousand_names_are_told_in_a_few_lines) {
    char said[8000] = "", name[64];
    int lines = 0;
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "odd%c%c%c%c", (int)('a' + i % 10), (int)('a' + i / 10 % 10),
                 (int)('a' + i / 100 % 10), (int)('a' + i / 1000));
        ranges_add(ranges, "", name, 10 * i, 10 * i + 5, 1);
        snprintf(name, sizeof name, "request %lld", (long long)i);
        ranges_add(ranges, "", name, 10 * i, 10 * i + 7, 1);
        if (i % 100 == 0)
            ranges_add(ranges, "", "seldom", 10 * i, 10 * i + 1, 1);
    }
    ranges_say(ranges, said, sizeof said);
    for (const char *at = said; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 1 + 12 + 1 + 1); /* head, names, an iteration, how many more */
    assert_contains(said, "and 9989 more names\n");
    const char *seldom = strstr(said, "seldom"), *once = strstr(said, "oddaaaa");
    assert_true(seldom && once && seldom < once);
    ranges_suggest(ranges);
    assert_true(strlen(ranges->text) < 40000);
    assert_contains(ranges->text, "# and 9801 more\n");
    lines = 0;
    for (const char *at = ranges->text; (at = strstr(at, ", phase: }")); at++)
        lines++;
    assert_int_equal(lines, 200);
}

static const char *const hostile[] = {
    "experts: [x]\n- {name: evil, phase: gate}",
    "experts \"quoted\" 'twice' \\ #comment",
    "experts * ? {layer} {phase}",
    "experts now?",
    "experts now!",
    "experts \x1b[2J\r\x07\x7f",
    "experts \xff\xfe broken",
    "experts \xe2\x80\xae reversed \xe2\x80\xa8 line",
    "%YAML 1.2 experts --- ...",
    "experts 99999999999999999999 007",
};

/* Every one has a rule of its own. */
RANGES_TEST(hostile_names_are_quoted) {
    struct mp_rule_capture capture;
    char said[4000] = "";
    enum { HOSTILE = sizeof hostile / sizeof *hostile };
    ranges_begin(ranges, 0);
    for (int i = 0; i < HOSTILE; i++)
        ranges_add(ranges, "do\nmain \x01", hostile[i], 10 * i, 10 * i + 5, 1);
    ranges_suggest(ranges);
    assert_int_equal(ranges->rules.count, HOSTILE);
    const struct mp_rule *found[HOSTILE];
    for (int i = 0; i < HOSTILE; i++) {
        found[i] = mp_rules_find(&ranges->rules, hostile[i], "do\nmain \x01", &capture);
        if (!found[i])
            fail_msg("nothing for %s", hostile[i]);
        assert_int_equal(found[i]->phase, MP_PHASE_EXPERT);
        for (int other = 0; other < i; other++)
            assert_ptr_not_equal(found[i], found[other]);
    }
    ranges_say(ranges, said, sizeof said);
    for (const char *at = said; *at; at++)
        assert_true(*at == '\n' || ((unsigned char)*at >= ' ' && *at != 0x7f));
}

/* Whatever its bytes are, a name's proposal is read back and covers it. */
RANGES_TEST(random_names_are_covered) {
    enum { NAMES = 150 };
    static char name[NAMES][64];
    uint64_t seed = test_seed();
    ranges_begin(ranges, 0);
    for (int i = 0; i < NAMES; i++) {
        static const char often[] = "0123456789 \\*?{}_.#\"'layerstep\n";
        int length = test_random_int(&seed, 1, 40);
        for (int c = 0; c < length; c++)
            name[i][c] = (char)(test_random_int(&seed, 0, 2)
                                    ? often[test_random_int(&seed, 0, (int)sizeof often - 2)]
                                    : test_random_int(&seed, 1, 255));
        if (i < 2) /* one number, written in two ways */
            length = snprintf(name[i], sizeof name[i], "%0*d", i + 1, 1);
        strcpy(name[i] + length, " experts");
        ranges_add(ranges, "", name[i], 10 * i, 10 * i + 5, 1);
    }
    ranges_suggest(ranges);
    for (int i = 0; i < NAMES; i++) {
        const struct mp_rule *rule = rule_of(ranges, name[i]);
        if (!rule || rule->phase == MP_PHASES)
            fail_msg("nothing covers %s", name[i]);
    }
}

/* ---- rules in use ---- */

RANGES_TEST(rules_in_use_stay) {
    struct mp_rule_capture capture;
    static const char text[] =
        "rules:\n"
        "  - {name: \"frob*\", domain: mine, phase: shared, layer: payload.block, tokens: payload, "
        "bytes: \"payload.Message size [bytes]\", direction: payload, waits: payload.ns, "
        "stream: comm, iteration: 3}\n"
        "  - {name: \"never\", phase: gate}\n"
        "  - {name: \"{phase} {layer}\", phase: }\n"
        "iteration-ends:\n  - {name: \"frobber\", domain: \"\"}\n  - {name: never}\n";
    char *blank = strstr(text, ", phase: }");
    assert_non_null(blank);
    char cut[sizeof text];
    snprintf(cut, sizeof cut, "%.*s%s", (int)(blank - text), text, blank + strlen(", phase: "));
    assert_works(mp_rules_parse("text", cut, strlen(cut), &ranges->in_use, &error));
    ranges_begin(ranges, 0);
    ranges_add(ranges, "mine", "frobnicate", 10, 20, 1);
    ranges_add(ranges, "", "frobber", 20, 30, 1);
    ranges_add(ranges, "", "head 3", 30, 40, 1);
    ranges_suggest(ranges);
    assert_numbers(ranges->rules.count, 2, ranges->rules.ends, 1);
    const struct mp_rule *rule = mp_rules_find(&ranges->rules, "frobx", "mine", &capture);
    assert_int_equal(rule->phase, MP_PHASE_SHARED);
    assert_string_equal(rule->layer.field, "block");
    assert_string_equal(rule->tokens.field, "");
    assert_string_equal(rule->bytes.field, "Message size [bytes]");
    assert_string_equal(rule->direction.field, "");
    assert_string_equal(rule->waits.field, "ns");
    assert_int_equal(rule->iteration.constant, 3);
    assert_true(rule->in_flight);
    assert_non_null(mp_rules_find(&ranges->rules, "expert 3", "", &capture));
    assert_int_equal(capture.phase, MP_PHASE_EXPERT);
}

RANGES_TEST(payloads_are_proposed) {
    ranges_begin(ranges, 0);
    for (int64_t i = 0; i < 3; i++) {
        ranges_add_value(ranges, "experts", 10 * i, 10 * i + 5, 64);
        ranges_add_value(ranges, "all_to_all", 10 * i + 5, 10 * i + 9, 4096);
        const struct mp_range echo = {.start_ns = RANGES_T0 + 10 * i + 6, /* nobody's own */
                                      .end_ns = RANGES_T0 + 10 * i + 8,
                                      .name = ranges_name(ranges, "experts", MP_NAME_STRING),
                                      .traits = MP_RANGE_ECHO};
        put_range(ranges->thread, echo);
    }
    ranges_suggest(ranges);
    assert_null(strstr(ranges->text, "# 6 ranges"));
    const struct mp_rule *rule = rule_of(ranges, "experts");
    assert_int_equal(rule->tokens.source, MP_RULE_FIELD);
    assert_string_equal(rule->tokens.field, "");
    rule = rule_of(ranges, "all_to_all");
    assert_numbers(rule->tokens.source, MP_RULE_UNSAID, rule->bytes.source, MP_RULE_FIELD);
}

RANGES_TEST(a_file_that_is_there_stays) {
    ranges_begin(ranges, 0);
    ranges_add(ranges, "", "experts", 0, 5, 1);
    write_bytes(ranges->file, "mine", 4);
    struct mp_suggestion *suggestion = ranges_judge(ranges);
    assert_int_equal(mp_suggestion_guesses(suggestion), 1);
    assert_fails(mp_suggestion_write(suggestion, ranges->file, "again", &error), MP_EINVAL,
                 "is there already");
    mp_suggestion_destroy(suggestion);
    size_t size;
    AUTO(text) char *text = read_bytes(ranges->file, &size);
    assert_string_equal(text, "mine");
}
