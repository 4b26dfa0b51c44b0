/* JSON beside what it should be. */
#pragma once

#include <jansson.h>

#include "tests/results/ends.h"

/* Of a text in which apostrophes stand for quotation marks; to be released. */
static inline json_t *json_of_text(const char *text) {
    json_error_t error;
    AUTO(text) char *quoted = strdup(text);
    for (char *at = quoted; (at = strchr(at, '\''));)
        *at = '"';
    json_t *value = json_loads(quoted, 0, &error);
    if (!value)
        fail_msg("%d: %s", error.line, error.text);
    return value;
}

/* Everything that is expected is there, numbers within `tolerance` times 1 or their size; with
 * `whole` nothing else is there. */
static inline void json_compare(const json_t *is, const json_t *expected, const char *where,
                                double tolerance, bool whole) {
    char place[256];
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_object(expected)) {
        json_object_foreach((json_t *)expected, key, value) {
            snprintf(place, sizeof place, "%s.%s", where, key);
            if (!json_object_get(is, key))
                fail_msg("%s is not there", place);
            json_compare(json_object_get(is, key), value, place, tolerance, whole);
        }
        if (whole && json_object_size(is) != json_object_size(expected))
            fail_msg("%s has %zu figures, %zu expected", where, json_object_size(is),
                     json_object_size(expected));
    } else if (json_is_array(expected)) {
        if (json_array_size(is) != json_array_size(expected))
            fail_msg("%s has %zu, not %zu", where, json_array_size(is), json_array_size(expected));
        json_array_foreach(expected, i, value) {
            snprintf(place, sizeof place, "%s[%zu]", where, i);
            json_compare(json_array_get(is, i), value, place, tolerance, whole);
        }
    } else if (json_is_number(expected)) {
        double wanted = json_number_value(expected), got = json_number_value(is);
        if (!json_is_number(is) || !(fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted))))
            fail_msg("%s is %.9g, not %.9g", where, got, wanted);
    } else if (!json_equal(is, expected)) {
        char *text = json_dumps(is, JSON_ENCODE_ANY);
        fail_msg("%s is %s", where, text);
    }
}

/* All that is expected is there. */
static inline void assert_json(const json_t *is, double tolerance, const char *expected) {
    AUTO(json) json_t *by_hand = json_of_text(expected);
    json_compare(is, by_hand, "", tolerance, false);
}
