/* Published figures: every file keeps the schema, and the schema refuses what it should. */
#include "results/paper/paper.h"

#include <jansson.h>
#include <math.h>

#include "tests/errors.h"

static struct mp_published *load(const struct mp_paper *paper) {
    struct mp_published *published = NULL;
    assert_works(mp_published_parse(paper->name, paper->text, &published, &error));
    return published;
}

TEST(every_file_keeps_the_schema) {
    for (const struct mp_paper *paper = mp_papers; paper->name; paper++) {
        struct mp_published *published = load(paper);
        json_t *json = json_loads(paper->text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(json); /* for those who read them as what they are */
        assert_int_equal(json_array_size(json_object_get(json, "rows")), published->rows);
        assert_true(published->rows > 0 && *published->paper && *published->setting);
        for (int i = 0; i < published->rows; i++)
            for (int j = 0; j < i; j++)
                assert_string_not_equal(published->row[i].id, published->row[j].id);
        json_decref(json);
        mp_published_destroy(published);
    }
}

/* Figures that several texts repeat: a slip of the pen in the data would show. */
TEST(figures_agree_with_each_other) {
    struct mp_published *symi = load(mp_paper_find("swiftmoe"));
    const struct mp_yaml *minutes = mp_yaml_get(symi->document, "minutes_to_target");
    double ours = strtod(mp_yaml_get(minutes, "swiftmoe")->text, NULL);
    static const struct {
        const char *id, *other;
    } pairs[] = {{"minutes", "deepspeed"},
                 {"minutes-100", "flexmoe every 100"},
                 {"minutes-50", "flexmoe every 50"},
                 {"minutes-10", "flexmoe every 10"}};
    int found = 0;
    for (int i = 0; i < symi->rows; i++)
        for (int pair = 0; pair < 4; pair++)
            if (!strcmp(symi->row[i].id, pairs[pair].id)) {
                double other = strtod(mp_yaml_get(minutes, pairs[pair].other)->text, NULL);
                assert_true(fabs(symi->row[i].high - (ours / other - 1)) < 1e-3);
                found++;
            }
    assert_int_equal(found, 4);
    mp_published_destroy(symi);
}

/* A row that is right, with `change` put over it ("key": null takes the key away). */
static int read_changed(const char *change, struct mp_paper_row *row, struct mp_error *error) {
    json_t *entry = json_pack("{ss ss ss sf ss ss ss}", "id", "a-1", "what", "x", "unit", "ms",
                              "value", 2.0, "setting", "s", "source", "t", "certainty", "stated");
    json_t *changes = json_loads(change, 0, NULL), *value;
    const char *key;
    char text[1024];
    struct mp_published *published = NULL;
    assert_non_null(changes);
    json_object_foreach(changes, key, value) {
        if (json_is_null(value))
            json_object_del(entry, key);
        else
            json_object_set(entry, key, value);
    }
    AUTO(text) char *dumped = json_dumps(entry, 0);
    snprintf(text, sizeof text,
             "{\"paper\": \"p\", \"source\": \"s\", \"setting\": \"t\",\n\"rows\": [\n%s]}",
             dumped);
    *error = (struct mp_error){0};
    int code = mp_published_parse("file", text, &published, error);
    if (!code)
        *row = published->row[0];
    mp_published_destroy(published);
    json_decref(changes);
    json_decref(entry);
    return code;
}

TEST(wrong_rows_are_refused) {
    static const struct {
        const char *change, *says;
    } cases[] = {
        {"{\"id\": \"A b\"}", "no row's id"},
        {"{\"what\": null}", "what: not given; a row needs some text"},
        {"{\"source\": \"\"}", "source: should be some text"},
        {"{\"note\": [3]}", "note: should be one value: some text"},
        {"{\"unit\": \"furlongs\"}", "unit: \"furlongs\" is not one of speed-up, ratio"},
        {"{\"certainty\": \"from memry\"}", "certainty: \"from memry\" is not one of stated"},
        {"{\"values\": 3}", "unknown option \"values\" for a row; did you mean \"value\"?"},
        {"{\"value\": null}", "needs either"},
        {"{\"high\": 3}", "needs either"},
        {"{\"value\": \"two\"}", "value: \"two\" is not a number"},
        {"{\"value\": null, \"low\": 3}", "needs either"},
        {"{\"value\": null, \"low\": 3, \"high\": 3}", "no range"},
        {"{\"value\": null, \"low\": 3, \"high\": 2}", "no range"}};
    struct mp_error error;
    struct mp_paper_row row;
    assert_int_equal(read_changed("{}", &row, &error), 0);
    assert_true(row.low == 2 && row.high == 2 && row.unit == MP_PAPER_MS && !row.note);
    assert_int_equal(read_changed("{\"value\": null, \"low\": 1, \"high\": 2}", &row, &error), 0);
    assert_true(row.low == 1 && row.high == 2);
    assert_int_equal(read_changed("{\"value\": null, \"high\": 2}", &row, &error), 0);
    assert_true(row.low == -INFINITY && row.high == 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_changed(cases[i].change, &row, &error), MP_EINVAL);
        if (!strstr(error.text, cases[i].says) || strncmp(error.text, "file:3: ", 8) != 0)
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
