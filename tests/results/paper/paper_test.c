/* Published figures: every file keeps the schema, and the schema refuses what it should. */
#include "results/paper/paper.h"

#include "tests/support.h"

static json_t *load(const struct mp_paper *paper) {
    json_error_t problem;
    json_t *object = json_loads(paper->text, JSON_REJECT_DUPLICATES, &problem);
    if (!object)
        fail_msg("%s, line %d: %s", paper->name, problem.line, problem.text);
    return object;
}

TEST(every_file_keeps_the_schema) {
    for (const struct mp_paper *paper = mp_papers; paper->name; paper++) {
        json_t *object = load(paper), *rows = json_object_get(object, "rows");
        struct mp_paper_row row, other;
        struct mp_error error = {0};
        assert_true(json_array_size(rows) > 0);
        static const char *const texts[] = {"paper", "source", "setting"};
        for (int i = 0; i < 3; i++)
            assert_true(json_string_length(json_object_get(object, texts[i])) > 0);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            if (mp_paper_row_read(paper->name, json_array_get(rows, i), &row, &error))
                fail_msg("%s", error.text);
            for (size_t j = 0; j < i; j++) {
                assert_int_equal(
                    mp_paper_row_read(paper->name, json_array_get(rows, j), &other, &error), 0);
                assert_string_not_equal(row.id, other.id);
            }
        }
        json_decref(object);
    }
}

/* Figures that several texts repeat: a slip of the pen in the data would show. */
TEST(figures_agree_with_each_other) {
    json_t *symi = load(mp_paper_find("swiftmoe"));
    const json_t *minutes = json_object_get(symi, "minutes_to_target");
    const json_t *rows = json_object_get(symi, "rows");
    double ours = json_number_value(json_object_get(minutes, "swiftmoe"));
    static const struct {
        const char *id, *other;
    } pairs[] = {{"minutes", "deepspeed"},
                 {"minutes-100", "flexmoe every 100"},
                 {"minutes-50", "flexmoe every 50"},
                 {"minutes-10", "flexmoe every 10"}};
    int found = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        struct mp_paper_row row;
        assert_int_equal(mp_paper_row_read("symi", json_array_get(rows, i), &row, NULL), 0);
        for (int pair = 0; pair < 4; pair++)
            if (!strcmp(row.id, pairs[pair].id)) {
                double other = json_number_value(json_object_get(minutes, pairs[pair].other));
                assert_true(fabs(row.high - (ours / other - 1)) < 1e-3);
                found++;
            }
    }
    assert_int_equal(found, 4);
    json_decref(symi);
}

/* A row that is right, with `change` put over it ("key": null takes the key away). */
static int read_changed(const char *change, struct mp_error *error) {
    json_t *entry = json_pack("{ss ss ss sf ss ss ss}", "id", "a-1", "what", "x", "unit", "ms",
                              "value", 2.0, "setting", "s", "source", "t", "certainty", "stated");
    json_t *changes = json_loads(change, 0, NULL), *value;
    const char *key;
    struct mp_paper_row row;
    assert_non_null(changes);
    json_object_foreach(changes, key, value) {
        if (json_is_null(value))
            json_object_del(entry, key);
        else
            json_object_set(entry, key, value);
    }
    *error = (struct mp_error){0};
    int code = mp_paper_row_read("file", entry, &row, error);
    json_decref(changes);
    json_decref(entry);
    return code;
}

TEST(wrong_rows_are_refused) {
    static const struct {
        const char *change, *says;
    } cases[] = {{"{\"id\": \"A b\"}", "no row's id"},
                 {"{\"what\": null}", "\"what\" is no text"},
                 {"{\"source\": \"\"}", "\"source\" is no text"},
                 {"{\"note\": 3}", "\"note\" is no text"},
                 {"{\"unit\": \"furlongs\"}", "unknown unit"},
                 {"{\"certainty\": \"sure\"}", "unknown certainty"},
                 {"{\"values\": 3}", "unknown key \"values\""},
                 {"{\"value\": null}", "needs either"},
                 {"{\"high\": 3}", "needs either"},
                 {"{\"value\": \"2\"}", "no number"},
                 {"{\"value\": null, \"low\": 3}", "needs either"},
                 {"{\"value\": null, \"low\": 3, \"high\": 2}", "no range"}};
    struct mp_error error;
    assert_int_equal(read_changed("{}", &error), 0);
    assert_int_equal(read_changed("{\"value\": null, \"low\": 1, \"high\": 2}", &error), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_changed(cases[i].change, &error), MP_EFORMAT);
        if (!strstr(error.text, cases[i].says) || strncmp(error.text, "file: ", 6) != 0)
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].change, error.text, cases[i].says);
    }
}

TEST(inside_means_what_it_says) {
    struct mp_paper_row range = {.unit = MP_PAPER_SPEED_UP, .low = 1.4, .high = 1.6};
    struct mp_paper_row single = {.unit = MP_PAPER_MS, .low = 200, .high = 200};
    struct mp_paper_row most = {.unit = MP_PAPER_SPEED_UP, .low = -INFINITY, .high = 2};
    struct mp_paper_row change = {.unit = MP_PAPER_CHANGE, .low = 0, .high = 0};
    assert_true(mp_paper_inside(&range, 1.4) && mp_paper_inside(&range, 1.6));
    assert_false(mp_paper_inside(&range, 1.399) || mp_paper_inside(&range, 1.601));
    assert_true(mp_paper_inside(&single, 181) && mp_paper_inside(&single, 219));
    assert_false(mp_paper_inside(&single, 179) || mp_paper_inside(&single, 221));
    assert_true(mp_paper_inside(&most, 1.81) && mp_paper_inside(&most, 2.19));
    assert_false(mp_paper_inside(&most, 0.94) || mp_paper_inside(&most, 2.21)); /* a slow-down */
    assert_true(mp_paper_inside(&change, -0.04) && !mp_paper_inside(&change, 0.06));
    assert_false(mp_paper_inside(&range, NAN) || mp_paper_inside(&most, NAN));
}
