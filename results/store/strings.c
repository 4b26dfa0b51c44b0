#include "results/store/internal.h"

#include <stdlib.h>

#include "reference/base/arena.h"

void strings_free(struct strings *strings) {
    name_table_free(&strings->names);
    free(strings->ids);
    *strings = (struct strings){0};
}

int strings_store(const struct strings *strings, const char *name, int64_t *id,
                  struct mp_error *error) {
    sqlite3_stmt *select;
    MP_TRY(STORE_PUT(strings->store, "cannot store a name", error,
                     "INSERT INTO StringIds (value) VALUES (?) ON CONFLICT DO NOTHING", V(name)));
    MP_TRY(store_statement(strings->store, "SELECT id FROM StringIds WHERE value = ?", &select,
                           error));
    sqlite3_bind_text(select, 1, name, -1, SQLITE_STATIC);
    int code = MP_OK;
    if (sqlite3_step(select) == SQLITE_ROW)
        *id = sqlite3_column_int64(select, 0);
    else
        code = mp_store_fail(strings->store, "cannot find a name", error);
    sqlite3_reset(select);
    return code;
}

int strings_id(struct strings *strings, const char *name, int64_t *id, struct mp_error *error) {
    bool is_new;
    const uint32_t number = name_table_number(&strings->names, name, &is_new);
    if (!number || (is_new && !MP_ROOM(strings->ids, number - 1)))
        return mp_no_memory(error);
    if (is_new)
        MP_TRY(strings_store(strings, name, &strings->ids[number - 1], error));
    *id = strings->ids[number - 1];
    return MP_OK;
}

int strings_number(struct strings *strings, int64_t run_id, int rank,
                   const struct mp_spool_record *number, struct mp_error *error) {
    int64_t name_id = 0;
    MP_TRY(strings_id(strings, number->as.number.name, &name_id, error));
    return STORE_PUT(strings->store, "cannot store a number", error,
                     "INSERT OR REPLACE INTO number VALUES (?, ?, ?, ?, ?, ?)", V(run_id), V(rank),
                     V(number->as.number.iteration), V(number->as.number.layer), V(name_id),
                     V(number->as.number.value));
}
