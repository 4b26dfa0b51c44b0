/* Reports as text and as JSON, for the tests of what they say. */
#pragma once

#include <jansson.h>

#include "results/report/report.h"
#include "tests/results/runs.h"

typedef int (*report)(struct mp_store *, const struct mp_report_selection *, enum mp_report_format,
                      FILE *, struct mp_error *);

/* The report as text; to be freed. */
static inline char *text_of(report print, struct mp_store *store,
                            const struct mp_report_selection *selection,
                            enum mp_report_format format) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_works(print(store, selection, format, out, &error));
    fclose(out);
    return text;
}

/* The report as an object, to be released. */
static inline json_t *json_of(report print, struct mp_store *store,
                              const struct mp_report_selection *selection) {
    AUTO(text) char *text = text_of(print, store, selection, MP_REPORT_JSON);
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    return object;
}

static inline void assert_text(report print, struct mp_store *store,
                               const struct mp_report_selection *selection, const char *expected) {
    AUTO(text) char *text = text_of(print, store, selection, MP_REPORT_TEXT);
    assert_string_equal(text, expected);
}

static inline void assert_says(const char *text, const char *words) {
    if (!strstr(text, words))
        fail_msg("'%s' is not in\n%s", words, text);
}

/* The report says all of the texts; LACKS "text": it must not. */
#define LACKS "\1"
#define assert_report(print, store, selection, ...)                                                \
    report_says(print, store, selection, (const char *const[]){__VA_ARGS__, NULL})

static inline void report_says(report print, struct mp_store *store,
                               const struct mp_report_selection *selection,
                               const char *const texts[]) {
    AUTO(text) char *text = text_of(print, store, selection, MP_REPORT_TEXT);
    for (; *texts; texts++) {
        bool lacks = **texts == *LACKS;
        if (!strstr(text, *texts + lacks) != lacks)
            fail_msg("'%s' is %s in\n%s", *texts + lacks, lacks ? "" : "not", text);
    }
}

static inline double number_at(json_t *row, const char *key) {
    json_t *value = json_object_get(row, key);
    assert_non_null(value);
    return json_is_null(value) ? NAN : json_number_value(value);
}
