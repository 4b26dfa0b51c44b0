/* For tests of pages: what draws them may be missing. */
#ifndef MOEPERF_TESTS_RESULTS_BROWSER_H
#define MOEPERF_TESTS_RESULTS_BROWSER_H

#include "results/report/browser.h"
#include "results/report/vega.h"
#include "tests/support.h"

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

#endif
