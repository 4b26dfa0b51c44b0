/* Vega, which draws the charts of the HTML report: where the distribution's package put it, and
 * its modules as one script. */
#pragma once

#include <stdio.h>

#include "reference/base/error.h"

enum { MP_VEGA_FOLDER = 512 };

/* The folder of its modules: the environment variable MOEPERF_VEGA, or without it where Debian and
 * Ubuntu put them.  Errors: MP_ENOTFOUND, which names the first missing module and the package. */
int mp_vega_find(char folder[MP_VEGA_FOLDER], struct mp_error *error);

/* Writes the modules of that folder as functions of a table `modules` by name, each as CommonJS
 * asks for it: modules["vega-util"](module, exports, require).  What follows is up to the page's
 * own script.  Nothing written can end the script element that it stands in.  Errors: MP_EIO. */
int mp_vega_write(const char *folder, FILE *out, struct mp_error *error);

/* Writes the package's copyright file, in which a page may carry it, or where that is not installed
 * what it is called and under which licence. */
int mp_vega_write_licence(FILE *out, struct mp_error *error);
