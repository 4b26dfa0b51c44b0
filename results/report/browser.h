/* A browser without a window: shows a page, evaluates its script, prints it.
 *
 * Vega draws in it as it does for readers of a page, with the metrics of real fonts, and what it
 * prints is a PDF of lines and letters; other ways to run Vega only estimate how wide a text is,
 * and need a second program for PDF.  One process serves all charts of a page: it is spoken to by
 * DevTools' protocol (chromedevtools.github.io/devtools-protocol) over a pipe, so that neither a
 * port is opened nor a file shared with it, and loads nothing from anywhere. */
#pragma once

#include <jansson.h>

#include "reference/base/error.h"

enum { MP_BROWSER_PATH = 512 };

/* The program: what the environment variable MOEPERF_BROWSER says, or without it chromium,
 * chromium-browser, google-chrome or chrome from PATH.  Errors: MP_ENOTFOUND, which names the
 * package. */
int mp_browser_find(char path[MP_BROWSER_PATH], struct mp_error *error);

struct mp_browser;

/* Starts it with a page made of `html`, whose scripts have run when this returns.  Errors:
 * mp_browser_find's, MP_EIO (it does not start, or does not answer within a minute), MP_ENOMEM. */
int mp_browser_open(struct mp_browser **browser, const char *html, struct mp_error *error);

/* What an expression of JavaScript gives, waited for if it is a promise, as JSON; a reference to be
 * given up.  Errors: MP_EIO, which has what was thrown; MP_ENOMEM. */
int mp_browser_evaluate(struct mp_browser *browser, const char *expression, json_t **value,
                        struct mp_error *error);

/* Prints the first page, of this size in inches and without margins, as a PDF to `path`, whole or
 * not at all.  Errors: MP_EIO, MP_ENOSPACE, MP_ENOMEM. */
int mp_browser_print(struct mp_browser *browser, double width, double height, const char *path,
                     struct mp_error *error);

/* Ends it and removes what it kept; accepts NULL. */
void mp_browser_close(struct mp_browser *browser);
MP_END(browser, struct mp_browser *, mp_browser_close(*it))
