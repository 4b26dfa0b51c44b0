/* Reports as JSON objects: see report_object.h. */
#include "harness/cli/report_object.h"

#include <stdlib.h>

json_t *cli_report_object(cli_report_function *report, struct mp_store *store,
                          const struct mp_report_selection *selection, struct mp_error *error) {
    char *text = NULL;
    size_t size;
    json_t *object = NULL;
    FILE *stream = open_memstream(&text, &size);
    if (stream) {
        int code = report(store, selection, MP_REPORT_JSON, stream, error);
        if (fclose(stream) == 0 && !code)
            object = json_loadb(text, size, 0, NULL);
    }
    free(text);
    if (!object) /* also when the report has failed and said why: its word stays */
        mp_fail(error, MP_ENOMEM, "no memory for a report");
    return object;
}
