#include "results/store/strings.h"

#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"

int strings_init(struct strings *strings, struct mp_store *store, struct mp_error *error) {
    *strings = (struct strings){.store = store};
    MP_TRY(store_prepare(store, "INSERT INTO StringIds (value) VALUES (?) ON CONFLICT DO NOTHING",
                         &strings->insert, error));
    return store_prepare(store, "SELECT id FROM StringIds WHERE value = ?", &strings->select,
                         error);
}

void strings_free(struct strings *strings) {
    sqlite3_finalize(strings->insert);
    sqlite3_finalize(strings->select);
    for (int i = 0; i < strings->count; i++)
        free(strings->names[i]);
    free(strings->names);
    free(strings->ids);
    *strings = (struct strings){0};
}

static int remember(struct strings *strings, const char *name, int64_t id, struct mp_error *error) {
    bool has_room =
        MP_ROOM(strings->names, strings->count) && MP_ROOM(strings->ids, strings->count);
    char *copy = has_room ? strdup(name) : NULL;
    if (!copy)
        return mp_no_memory(error);
    strings->names[strings->count] = copy;
    strings->ids[strings->count++] = id;
    return MP_OK;
}

int strings_store(struct strings *strings, const char *name, int64_t *id, struct mp_error *error) {
    sqlite3_bind_text(strings->insert, 1, name, -1, SQLITE_STATIC);
    MP_TRY(store_run(strings->store, strings->insert, "cannot store a name", error));
    sqlite3_bind_text(strings->select, 1, name, -1, SQLITE_STATIC);
    int code = MP_OK;
    if (sqlite3_step(strings->select) == SQLITE_ROW)
        *id = sqlite3_column_int64(strings->select, 0);
    else
        code = mp_store_fail(strings->store, "cannot find a name", error);
    sqlite3_reset(strings->select);
    return code;
}

int strings_id(struct strings *strings, const char *name, int64_t *id, struct mp_error *error) {
    for (int i = 0; i < strings->count; i++) {
        if (strcmp(strings->names[i], name) == 0) {
            *id = strings->ids[i];
            return MP_OK;
        }
    }
    MP_TRY(strings_store(strings, name, id, error));
    return remember(strings, name, *id, error);
}
