/* moeperf reproduce as people start it. */
#include "tests/harness/cli/shell.h"

static void names_are_checked(void **state) {
    (void)state;
    assert_says("moeperf reproduce hectate", 2, "did you mean \"hecate\"?");
    assert_says("moeperf reproduce no-such.yaml", 2, "no-such.yaml");
    assert_says("moeperf reproduce laer --iterations laer", 2, "JOB=N");
    assert_says("moeperf reproduce laer --iterations lear=10", 2, "has no such job");
    assert_says("moeperf reproduce laer --db-measured none.db", 2, "none.db");
    assert_says("moeperf reproduce laer --set layer=3", 2, "did you mean \"layers\"?");
    assert_says("moeperf reproduce laer --loads zipff", 2, "did you mean \"zipf\"?");
}

static void published_rows_are_listed(void **state) {
    (void)state;
    char *text = shell("moeperf reproduce hecate --list", 0);
    assert_non_null(strstr(text, "a32-speed-up"));
    assert_non_null(strstr(text, "1.34 .. 1.78"));
    assert_non_null(strstr(text, "1.40 .. 1.58  yes\n"));
    assert_non_null(strstr(text, "  no\n"));
    free(text);
}

static const json_t *line_of(const json_t *result, const char *row) {
    size_t i;
    const json_t *line;
    json_array_foreach(json_object_get(result, "lines"), i, line) {
        if (!strcmp(json_string_value(json_object_get(line, "row")), row))
            return line;
    }
    fail_msg("no row %s", row);
    return NULL;
}

static double ours(const json_t *result, const char *row) {
    return json_number_value(json_object_get(line_of(result, row), "ours"));
}

/* Numbers follow from each other, table and JSON have the same, and --strict finds what is outside.
 */
static void numbers_hang_together(void **state) {
    (void)state;
    json_t *result = json_of("moeperf reproduce laer --json", 0);
    double fsdp = ours(result, "fsdp-wikitext-0"), laer = ours(result, "laer-wikitext-0");
    assert_true(laer > 0 && fsdp > laer);
    assert_true(ours(result, "fsdp-ratio") == fsdp / laer);
    assert_true(json_array_size(json_object_get(result, "assumptions")) > 0);
    assert_true(json_array_size(json_object_get(result, "left_out")) > 0);
    char number[32];
    snprintf(number, sizeof number, "%.2f s", laer);
    char *text = shell("moeperf reproduce laer --details", 0);
    assert_non_null(strstr(text, number));
    assert_non_null(strstr(text, "assumed, the same for every row"));
    assert_non_null(strstr(text, "times in ms"));
    bool is_outside = strstr(text, "outside\n") != NULL;
    free(text);
    free(shell("moeperf reproduce laer --strict", is_outside));
    json_decref(result);
}

/* The published ratios of iteration times, within 10 %. */
static void laer_flex_and_fsdp_are_met(void **state) {
    (void)state;
    json_t *result = json_of("moeperf reproduce laer --json", 0);
    assert_true(json_is_true(json_object_get(line_of(result, "fsdp-ratio"), "inside")));
    assert_true(json_is_true(json_object_get(line_of(result, "flex-ratio"), "inside")));
    json_decref(result);
}

static void measured_iterations_give_times_to_a_loss(void **state) {
    (void)state;
    json_t *result = json_of("moeperf reproduce swiftmoe --json", 0);
    assert_true(json_is_null(json_object_get(line_of(result, "minutes"), "ours")));
    assert_non_null(strstr(
        json_string_value(json_object_get(line_of(result, "minutes"), "missing")), "swiftmoe"));
    double time = ours(result, "time-s");
    /* Its sign and size, which both systems' costs of weights and gradients are needed for. */
    assert_true(json_is_true(json_object_get(line_of(result, "time-s"), "inside")));
    assert_true(json_is_true(json_object_get(line_of(result, "time-m"), "inside")));
    assert_true(time < 0 && ours(result, "time-m") < 0 && ours(result, "time-l") < time);
    json_decref(result);
    result = json_of("moeperf reproduce swiftmoe --json --iterations swiftmoe=800 "
                     "--iterations deepspeed=1000",
                     0);
    double minutes = ours(result, "minutes"), wanted = 0.8 * (1 + time) - 1;
    assert_true(ours(result, "iterations") + 0.2 < 1e-12);
    assert_true(minutes - wanted < 1e-9 && wanted - minutes < 1e-9);
    json_decref(result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(published_rows_are_listed),
        cmocka_unit_test(numbers_hang_together),
        cmocka_unit_test(laer_flex_and_fsdp_are_met),
        cmocka_unit_test(measured_iterations_give_times_to_a_loss),
    };
    return cmocka_run_group_tests_name("reproduce", tests, enter_shell, leave_folder);
}
