/* Opening databases: where one to read is not there, those that are get named. */
#include <glob.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/suite/paths.h"
#include "reference/base/characters.h"

static bool is_database(const char *path) {
    struct mp_store *store = NULL;
    bool opened = mp_store_open_read_only(path, &store, NULL) == MP_OK;
    mp_store_close(store);
    return opened;
}

/* Adds to `text` those that a pattern finds, as the flag that opens each. */
static void add_found(const char *pattern, char *text, size_t size) {
    glob_t found;
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (strlen(text) + strlen(found.gl_pathv[i]) + 16 < size && is_database(found.gl_pathv[i]))
            mp_text_add(text, size, ", ", "--db %s", found.gl_pathv[i]);
    globfree(&found);
}

int cli_open_database(const char *path, struct mp_store **store, struct mp_error *error) {
    /* Where commands put one unless told otherwise, where ci/quickstart does, where people do. */
    static const char *const patterns[] = {CLI_DATABASE, "out/*/*.db", "*.db"};
    struct mp_error first = {0};
    char others[512] = "";
    int code = mp_store_open_read_only(path, store, &first);
    for (size_t i = 0; code == MP_ENOTFOUND && i < sizeof patterns / sizeof *patterns; i++)
        add_found(patterns[i], others, sizeof others);
    return code ? mp_fail(error, code, "%s%s%s", first.text, *others ? "; there is: " : "", others)
                : MP_OK;
}

int cli_create_database(const char *path, struct mp_store **store, struct mp_error *error) {
    MP_TRY(mp_path_create_parent(path, error));
    MP_TRY(mp_store_open(path, store, error));
    cli_wait_for_lock(*store);
    return MP_OK;
}
