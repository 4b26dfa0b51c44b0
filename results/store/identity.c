#include "results/store/identity.h"

#include <inttypes.h>
#include <stdio.h>

#include "results/store/internal.h"

static uint64_t add(uint64_t digest, uint64_t word) {
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    return digest ^ digest >> 32;
}

/* The zero at the end is part of it: "ab", "c" is not "a", "bc". */
static uint64_t add_text(uint64_t digest, const char *text) {
    if (!text)
        return add(digest, UINT64_MAX);
    do
        digest = add(digest, (unsigned char)*text);
    while (*text++);
    return digest;
}

static uint64_t digest_description(const struct mp_store_run *run) {
    const char *const texts[] = {run->suite,  run->suite_run, run->job,       run->system,
                                 run->status, run->reason,    run->started_at};
    uint64_t digest = add(1, (uint64_t)run->round);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        digest = add_text(digest, texts[i]);
    return digest;
}

void identity_of(const struct mp_store_run *run, const struct recordings *recordings,
                 char identity[IDENTITY_SIZE]) {
    uint64_t digest = run->job_text && *run->job_text ? add_text(0, run->job_text) : 0;
    bool recorded = false;
    for (int r = 0; r < recordings->ranks; r++) {
        recorded = recorded || recordings->rank[r].usable;
        digest = add(digest, recordings->rank[r].digest);
    }
    snprintf(identity, IDENTITY_SIZE, "%016" PRIx64, recorded ? digest : digest_description(run));
}

/* Run by run, because facts are ordered by run: some microseconds for thousands of runs. */
int identity_find(struct mp_store *store, const char *identity, int64_t *run_id,
                  struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    *run_id = 0;
    int code =
        store_prepare(store,
                      "SELECT run.run_id FROM run CROSS JOIN fact ON fact.run_id = run.run_id "
                      "AND fact.name = '" IDENTITY_FACT "' AND fact.rank = -1 "
                      "WHERE fact.value = ? ORDER BY run.run_id LIMIT 1",
                      &row, error);
    if (code)
        return code;
    sqlite3_bind_text(row, 1, identity, -1, SQLITE_STATIC);
    int step = sqlite3_step(row);
    if (step == SQLITE_ROW)
        *run_id = sqlite3_column_int64(row, 0);
    else if (step != SQLITE_DONE)
        code = mp_store_fail(store, "cannot look for the run", error);
    sqlite3_finalize(row);
    return code;
}
