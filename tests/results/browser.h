/* For tests of pages: what draws them, which may be missing, and how often they say something. */
#pragma once

#include "results/report/browser.h"
#include "results/report/vega.h"
#include "tests/files.h"

static inline void need_vega(void) {
    char folder[MP_VEGA_FOLDER];
    struct mp_error error = {0};
    unsetenv("MOEPERF_VEGA");
    if (mp_vega_find(folder, &error))
        skip("%s", error.text);
}

static inline void need_browser(char path[MP_BROWSER_PATH]) {
    need_vega();
    unsetenv("MOEPERF_BROWSER");
    if (mp_browser_find(path, NULL))
        skip("no chromium is installed, which draws the figures");
}

/* All of a file; to be freed. */
static inline char *file_text(const char *path) {
    size_t size;
    return read_bytes(path, &size);
}

static inline void assert_count(const char *text, const char *words, int expected) {
    int found = 0;
    for (const char *at = text; (at = strstr(at, words)); at += strlen(words))
        found++;
    if (found != expected)
        fail_msg("%d times %s in %.3000s", found, words, text);
}
