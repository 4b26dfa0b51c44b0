#include "results/report/vega.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "reference/base/yaml.h"

static const char package_folder[] = "/usr/share/javascript/vega";
static const char licence_file[] = "/usr/share/doc/libjs-vega/copyright";

/* What parsing a specification, running its view and the transforms in charts/ need: maps, trees,
 * forces and the like stay away, half the size. */
static const struct {
    const char *file, *name; /* name: by which the others ask for it */
} modules[] = {
    {"vega-util", "vega-util"},
    {"vega-time", "vega-time"},
    {"vega-format", "vega-format"},
    {"vega-loader", "vega-loader"},
    {"vega-dataflow", "vega-dataflow"},
    {"vega-statistics", "vega-statistics"},
    {"vega-canvas", "vega-canvas"},
    {"vega-scale", "vega-scale"},
    {"vega-scenegraph", "vega-scenegraph"},
    {"vega-expression", "vega-expression"},
    {"vega-event-selector", "vega-event-selector"},
    {"vega-selection", "vega-selections"},
    {"vega-functions", "vega-functions"},
    {"vega-parser", "vega-parser"},
    {"vega-runtime", "vega-runtime"},
    {"vega-view", "vega-view"},
    {"vega-transforms", "vega-transforms"},
    {"vega-view-transforms", "vega-view-transforms"},
    {"vega-encode", "vega-encode"},
    {"vega-interpreter", "vega-interpreter"},
};
enum { MODULES = MP_LENGTH(modules) };

static void path_of(const char *folder, int module, char *path, size_t size) {
    snprintf(path, size, "%s/%s.min.js", folder, modules[module].file);
}

int mp_vega_find(char folder[MP_VEGA_FOLDER], struct mp_error *error) {
    char path[MP_VEGA_FOLDER + 64];
    const char *wanted = getenv("MOEPERF_VEGA");
    snprintf(folder, MP_VEGA_FOLDER, "%s", wanted && *wanted ? wanted : package_folder);
    for (int i = 0; i < MODULES; i++) {
        path_of(folder, i, path, sizeof path);
        if (access(path, R_OK))
            return mp_fail(error, MP_ENOTFOUND,
                           "%s: %s; the HTML report draws with Vega: install libjs-vega (apt-get "
                           "install libjs-vega), or let MOEPERF_VEGA name the folder that has it",
                           path, strerror(errno));
    }
    return MP_OK;
}

/* Copies a script so that it can't end its element, nor hide the end: "</script" and "<!--" in
 * JavaScript stand in a string or a regular expression, where a '\\' behind the '<' changes
 * nothing. */
static void copy_script(const char *text, size_t size, FILE *out) {
    size_t from = 0;
    for (size_t at = 0; at + 8 <= size; at++)
        if (strncasecmp(text + at, "</script", 8) == 0 || strncmp(text + at, "<!--", 4) == 0) {
            fwrite(text + from, 1, at + 1 - from, out);
            fputc('\\', out);
            from = at + 1;
        }
    fwrite(text + from, 1, size - from, out);
}

static int copy_file(const char *path, FILE *out, struct mp_error *error) {
    MP_AUTO(text) char *text = NULL;
    size_t size = 0;
    MP_TRY(mp_yaml_read_file(path, &text, &size, error));
    copy_script(text, size, out);
    return MP_OK;
}

int mp_vega_write(const char *folder, FILE *out, struct mp_error *error) {
    char path[MP_VEGA_FOLDER + 64];
    fputs("const modules = {};\n", out);
    for (int i = 0; i < MODULES; i++) {
        path_of(folder, i, path, sizeof path);
        fprintf(out, "modules[\"%s\"] = function (module, exports, require) {\n", modules[i].name);
        MP_TRY(copy_file(path, out, error));
        fputs("\n};\n", out);
    }
    return MP_OK;
}

int mp_vega_write_licence(FILE *out, struct mp_error *error) {
    if (access(licence_file, R_OK)) {
        fputs("Vega, https://vega.github.io, BSD 3-clause licence", out);
        return MP_OK;
    }
    return copy_file(licence_file, out, error);
}
