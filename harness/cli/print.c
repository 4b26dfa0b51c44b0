/* Printing: JSON, and text filled to the width of a page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/suite/seconds.h"
#include "reference/base/characters.h"

FILE *cli_beside(const char *path) {
    struct stat file, output;
    bool is_output = !stat(path, &file) && !fstat(STDOUT_FILENO, &output) &&
                     file.st_dev == output.st_dev && file.st_ino == output.st_ino;
    return is_output ? stderr : stdout;
}

int cli_print_json(json_t *value, struct mp_error *error) {
    if (!value)
        return mp_fail(error, MP_ENOMEM, "no memory for the JSON text");
    int failed = json_dumpf(value, stdout, JSON_INDENT(2));
    json_decref(value);
    putchar('\n');
    return failed ? mp_fail(error, MP_EIO, "can't write to standard output: %s", strerror(errno))
                  : MP_OK;
}

int cli_read_format(struct cli_format *format, struct mp_error *error) {
    static const char *const names[] = {"text", "json", "csv", "markdown", "latex", NULL};
    const char *name = format->name;
    format->kind = format->json ? MP_REPORT_JSON : MP_REPORT_TEXT;
    for (int i = 0; name && names[i]; i++)
        if (!strcmp(name, names[i])) {
            format->kind = (enum mp_report_format)i;
            return format->json && format->kind != MP_REPORT_JSON
                       ? mp_fail(error, MP_EINVAL, "--format %s does not go with --json", name)
                       : MP_OK;
        }
    return name ? mp_fail(error, MP_EINVAL, "--format %.80s: should be " CLI_FORMAT_KINDS "%s",
                          name, mp_meant(name, names).text)
                : MP_OK;
}

void cli_draw_share(struct mp_progress *progress, const char *name, int done, int all,
                    double started) {
    const double passed = mp_seconds_now() - started;
    const struct mp_progress_state state = {.job = done < all ? done + 1 : done,
                                            .jobs = all,
                                            .name = name,
                                            .share = (double)done / all,
                                            .seconds_left =
                                                done ? passed / done * (all - done) : -1};
    mp_progress_draw(progress, &state);
}

void cli_print_clean(FILE *stream, const char *text, size_t length) {
    char *copy = strndup(text, length);
    fputs(copy ? mp_clean_text(copy, length + 1, copy) : "", stream);
    free(copy);
}
