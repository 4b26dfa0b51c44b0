/* A comparison that is put together by hand, in every form that it is printed in. */
#include "tests/errors.h"
#include "tests/results/ends.h"
#include "tests/results/json.h"

#include "results/compare/gate.h"

#define EXACT(measure, result, why, before, after)                                                 \
    {                                                                                              \
        .job = "fssdp", .name = measure, .system = "fssdp", .ranks = 4, .exact = true,             \
        .outcome = result, .evidence = {.effect = NAN}, .reason = why, .base = before,             \
        .head = after                                                                              \
    }

/* Of times: one that is slower by 5 %, in pairs, and one that nobody can tell.  Of exact measures:
 * two that differ for one reason, one that can't be told, one that is equal. */
static double base_samples[] = {9.9, 10, 10.1}, head_samples[] = {10.5, 10.4, 10.7};
static double one_base[] = {1234.56}, one_head[] = {150.25};
static struct mp_gate_metric metrics[] = {
    {.job = "fssdp",
     .name = "ms per iteration",
     .system = "fssdp",
     .ranks = 4,
     .outcome = MP_OUTCOME_FAIL,
     .reason = "slower by much",
     .where = "phase expert",
     .base = 10,
     .head = 10.5,
     .evidence = {.samples = {base_samples, head_samples, 3, 3, true},
                  .effect = 0.05,
                  .low = 0.04,
                  .high = 0.06,
                  .p = 0.0005,
                  .u = 3,
                  .u_p = 0.125},
     .adjusted_p = 0.002,
     .floor = 0.01},
    {.job = "e/p \xc3\xa9\xe2\x82\xac<&>\"\x7f\xc3(\xff\x01\xed\xa0\x80\xef\xbf\xbf",
     .name = "ms per iteration",
     .system = "ep",
     .ranks = 2,
     .outcome = MP_OUTCOME_INCONCLUSIVE,
     .reason = "too few",
     .base = 1234.56,
     .head = 150.25,
     .evidence = {.samples = {one_base, one_head, 1, 1, false},
                  .effect = -0.5,
                  .low = -1, /* as an interval without ends has it */
                  .high = INFINITY,
                  .p = 0.25,
                  .u = NAN,
                  .u_p = NAN},
     .adjusted_p = NAN,
     .floor = NAN},
    EXACT("copies", MP_OUTCOME_FAIL, "differs", 3, 5),
    EXACT("bytes", MP_OUTCOME_FAIL, "differs", NAN, 0.5),
    EXACT("loss", MP_OUTCOME_INCONCLUSIVE, "varies", NAN, NAN),
    EXACT("routes", MP_OUTCOME_PASS, "equal", 7, 7),
};
static struct mp_gate gate = {
    .base = "before 1111",
    .head = "after\x1b[1m 2222",
    .metric = metrics,
    .metrics = sizeof metrics / sizeof *metrics,
    .outcomes = {[MP_OUTCOME_PASS] = 1, [MP_OUTCOME_INCONCLUSIVE] = 2, [MP_OUTCOME_FAIL] = 3},
    .note = {"A first note.", "A second note."},
    .notes = 2,
    .minimum_effect = 0.02};

typedef int print(const struct mp_gate *gate, FILE *out, struct mp_error *error);

/* To be freed. */
static char *printed(print *how) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_works(how(&gate, out, &error));
    fclose(out);
    return text;
}

static int print_text(const struct mp_gate *of, FILE *out, struct mp_error *error) {
    return mp_gate_print(of, MP_REPORT_TEXT, out, error);
}

static int print_json(const struct mp_gate *of, FILE *out, struct mp_error *error) {
    return mp_gate_print(of, MP_REPORT_JSON, out, error);
}

static int print_csv(const struct mp_gate *of, FILE *out, struct mp_error *error) {
    return mp_gate_print(of, MP_REPORT_CSV, out, error);
}

/* Blanks in a row count as one. */
static void squeeze(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++)
        if (*from != ' ' || (to > text && to[-1] != ' ' && to[-1] != '\n'))
            *to++ = *from;
    *to = '\0';
}

static void assert_lines(const char *text, const char *const lines[], size_t count) {
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(at, lines[i]);
        if (!found)
            fail_msg("lacks, in this order, '%s':\n%s", lines[i], text);
        at = found + strlen(lines[i]);
    }
}

/* Times, and the exact measures that differ; a table after the other. */
TEST(as_tables) {
    static const char *const lines[] = {
        "table,job,base,head,effect,noise_floor,outcome,system,ranks,exact,reason,where,metric,",
        "\nms per iteration,fssdp,10.0,10.5,0.05,0.01,fail,",
        "\n\ntable,job,metric,base,head,outcome,system,",
        "\nexact measures,fssdp,copies,3.0,5.0,fail,",
        "\nexact measures,fssdp,bytes,,0.5,fail,",
    };
    AUTO(text) char *text = printed(print_csv);
    assert_lines(text, lines, sizeof lines / sizeof *lines);
    assert_null(strstr(text, "routes"));
    assert_null(strstr(text, "loss"));
}

TEST(as_text) {
    static const char *const lines[] = {
        "base before 1111\nhead after?[1m 2222\n\nms per iteration\n",
        "\nfssdp 10.000 10.500 +5.00 +4.00 .. +6.00 0.002 1.00 fail\n",
        " 1234.6 150.25 -50.00 unknown 0.250 - inconclusive\n",
        "\nfssdp copies 3 5 fail\nfssdp bytes - 0.5 fail\n\n",
        "1 exact measure is equal, 2 are not, 1 cannot be told.\n",
        "fail (fssdp): slower by much; phase expert.\n",
        "fail (fssdp copies, bytes): differs.\n",
        "inconclusive (e/p ",
        "): too few.\n",
        "inconclusive (fssdp loss): varies.\n",
        "A first note.\n",
        "A second note.\n",
        "\nfail: 3 failed, 2 inconclusive, 0 improved, 0 accepted, 1 passed\n",
    };
    AUTO(text) char *text = printed(print_text);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    squeeze(text);
    assert_lines(text, lines, sizeof lines / sizeof *lines);
    assert_null(strstr(text, "routes"));
}

/* Nothing but times, or nothing timed: no empty table. */
TEST(as_text_of_a_kind) {
    int all = gate.metrics;
    gate.metrics = 1;
    char *text = printed(print_text);
    assert_contains(text, "0 exact measures are equal, 0 are not, 0 cannot be told.");
    assert_null(strstr(text, "exact measure "));
    free(text);
    gate.metrics = 1;
    gate.metric = &metrics[2];
    text = printed(print_text);
    assert_contains(text, "0 exact measures are equal, 1 is not, 0 cannot be told.");
    assert_null(strstr(text, "ms per iteration"));
    free(text);
    gate.metric = metrics;
    gate.metrics = all;
}

/* Of more than eight places with one reason eight are named. */
TEST(many_places_are_counted) {
    struct mp_gate_metric many[11];
    char name[8];
    for (int i = 0; i < 11; i++) {
        many[i] = metrics[2];
        snprintf(name, sizeof name, "m%d", i);
        snprintf(many[i].name, sizeof many[i].name, "%s", name);
        snprintf(many[i].job, sizeof many[i].job, "%s", i < 2 ? "ep" : "fssdp");
    }
    struct mp_gate before = gate;
    gate.metric = many;
    gate.metrics = 11;
    AUTO(text) char *text = printed(print_text);
    for (char *at = text; *at; at++) /* paragraphs may be broken */
        *at = *at == '\n' ? ' ' : *at;
    squeeze(text);
    assert_contains(text, "fail (ep m0, m1; fssdp m2, m3, m4, m5, m6, m7 and 3 more): differs.");
    gate = before;
}

TEST(as_junit) {
    static const char *const lines[] = {
        "<testsuite name=\"gate\" tests=\"6\" failures=\"3\" errors=\"0\" skipped=\"2\">\n",
        "<testcase classname=\"gate.fssdp\" name=\"fssdp: ms per iteration ranks=4\">\n"
        "      <failure type=\"slower\" message=\"+5.00 % (+4.00 .. +6.00), p 0.002, floor 1.00 %: "
        "slower by much; phase expert\"/>\n    </testcase>\n",
        /* two and three bytes of UTF-8 stay; control characters, parts of characters, surrogates
         * and what is no character don't */
        "<testcase classname=\"gate.ep\" name=\"e/p "
        "\xc3\xa9\xe2\x82\xac&lt;&amp;&gt;&quot;?\?(??\?\?\?\?: ms per iteration ranks=2\">\n      "
        "<skipped message=\"inconclusive: -50.00 %, p 0.25: too few\"/>\n    </testcase>\n",
        "<failure type=\"different\" message=\"differs\"/>",
        "name=\"fssdp: routes ranks=4\"/>\n  </testsuite>\n</testsuites>\n",
    };
    AUTO(text) char *text = printed(mp_gate_print_junit);
    assert_lines(text, lines, sizeof lines / sizeof *lines);
}

static json_t *parsed(print *how) {
    AUTO(text) char *text = printed(how);
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    return object;
}

TEST(as_json) {
    AUTO(json) json_t *object = parsed(print_json);
    assert_json(
        object, 1e-15,
        "{'outcome': 'fail', 'base': 'before 1111', 'head': 'after\\u001b[1m 2222', "
        "'minimum_effect': 0.02, 'same_program': false, 'outcomes': {'fail': 3, 'inconclusive': 2, "
        "'improved': 0, 'pass': 1}, 'notes': ['A first note.', 'A second note.'], 'metrics': "
        "[{'job': 'fssdp', 'system': 'fssdp', 'metric': 'ms per iteration', 'ranks': 4, 'outcome': "
        "'fail', 'reason': 'slower by much', 'where': 'phase expert', 'unit': 'ms', 'paired': "
        "true, 'exact': false, 'base': 10, 'head': 10.5, 'effect': 0.05, 'low': 0.04, 'high': "
        "0.06, 'p': 0.0005, 'adjusted_p': 0.002, 'noise_floor': 0.01, 'mann_whitney_u': 3, "
        "'mann_whitney_p': 0.125, 'base_samples': [9.9, 10, 10.1], 'head_samples': [10.5, 10.4, "
        "10.7]}, {'where': null, 'noise_floor': null}, {'exact': true, 'base': 3, 'head': 5}, {}, "
        "{}, {}]}");
    const json_t *exact = json_array_get(json_object_get(object, "metrics"), 2);
    assert_null(json_object_get(exact, "p"));
}

TEST(as_trackers_have_it) {
    AUTO(json) json_t *array = parsed(mp_gate_print_action);
    AUTO(json) json_t *object = parsed(mp_gate_print_bencher);
    assert_json(array, 0,
                "[{'name': 'fssdp/ranks=4', 'unit': 'ms/iteration', 'range': '± 0.15',"
                " 'extra': '3 pairs, 10.4 .. 10.7 ms, +5.00 % against base: fail',"
                " 'value': 10.5}, {'range': '± 0',"
                " 'extra': '1 runs, 150.25 .. 150.25 ms, -50.00 % against base: inconclusive'}]");
    assert_json(object, 0,
                "{'fssdp/ranks=4': {'ms': {'value': 10.5, 'lower_value': 10.4,"
                " 'upper_value': 10.7}}}");
    assert_int_equal(json_object_size(object), 2);
}

static int print_base(const struct mp_gate *of, FILE *out, struct mp_error *error) {
    return mp_gate_print_benchstat(of, false, out, error);
}

static int print_head(const struct mp_gate *of, FILE *out, struct mp_error *error) {
    return mp_gate_print_benchstat(of, true, out, error);
}

TEST(as_benchstat) {
    AUTO(text) char *text = printed(print_base);
    assert_contains(text,
                    "side: base\nUnit ms/iteration better=lower\n"
                    "BenchmarkIteration/job=fssdp/system=fssdp/ranks=4 1 "
                    "9.9000000000000004 ms/iteration\n",
                    "/job=e_p_________", "/system=ep/ranks=2 1 1234.5599999999999 ms/iteration\n");
    assert_null(strstr(text, "150.25"));
    free(text);
    text = printed(print_head);
    assert_contains(text, "side: head\n", "ranks=4 1 10.5 ms/iteration\nBenchmark",
                    " 10.699999999999999 ms/iteration\n");
    int lines = 0;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, 2 + 3 + 1);
}
