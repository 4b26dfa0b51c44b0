/* GPU work of a long run: sixteen records in a row are six launches with their calls, a copy and a
 * set with theirs, in the order in which CUPTI hands them over: calls, external ids, work. */
#include "tests/bench/ingest_bench.h"

#include <stdio.h>

#include "profiler/record/spool.h"

enum { LAUNCHES = 8, ROWS_PER_GROUP = 2 * LAUNCHES, KERNEL_NAMES = 100 };
enum { CALL_NAME = 1, FIRST_KERNEL_NAME };

static int64_t groups_of(const struct ingest_work *work) {
    return (work->device_rows + ROWS_PER_GROUP * INGEST_RANKS - 1) /
           (ROWS_PER_GROUP * INGEST_RANKS);
}

/* Launch `l` of a group, on the host and on the GPU. */
static void make_launch(const struct ingest_work *work, int64_t group, int l,
                        struct mp_activity *call, struct mp_activity *piece) {
    int64_t at_ns =
        ingest_time(work, ((double)group + l / (double)LAUNCHES) / (double)groups_of(work));
    uint32_t correlation = (uint32_t)(group * LAUNCHES + l + 1);
    *call = (struct mp_activity){.start_ns = at_ns,
                                 .end_ns = at_ns + 4000,
                                 .correlation = correlation,
                                 .thread = 4711,
                                 .name = CALL_NAME,
                                 .kind = MP_ACTIVITY_CALL};
    *piece = (struct mp_activity){.start_ns = at_ns + 9000,
                                  .end_ns = at_ns + 9000 + (group * 131 + l * 17) % 400 * 100,
                                  .correlation = correlation,
                                  .context = 1,
                                  .stream = 7,
                                  .kind = MP_ACTIVITY_KERNEL};
    if (l < LAUNCHES - 2) {
        piece->name = FIRST_KERNEL_NAME + (uint32_t)(group + l) % KERNEL_NAMES;
        piece->registers = 128;
        piece->dynamic_shared = 98304;
        for (int d = 0; d < 3; d++) {
            piece->grid[d] = d ? 1 : 1024 + l;
            piece->block[d] = d ? 1 : 256;
        }
    } else {
        piece->kind = l == LAUNCHES - 2 ? MP_ACTIVITY_COPY : MP_ACTIVITY_SET;
        piece->value = 65536;
        piece->detail = 1;
        piece->result = 1;
    }
}

/* ---- spools ---- */

static void record_name(struct mp_record_thread *thread, uint32_t id, const char *text) {
    const uint32_t payload[4] = {id, MP_NAME_STRING, 0, 0};
    mp_record_fixed(thread, MP_SPOOL_NAME, payload, sizeof payload, text);
}

static void record_group(const struct ingest_work *work, struct mp_record_thread *thread,
                         int64_t group) {
    struct mp_activity call[LAUNCHES], piece[LAUNCHES];
    for (int l = 0; l < LAUNCHES; l++) {
        make_launch(work, group, l, &call[l], &piece[l]);
        mp_record_fixed(thread, MP_SPOOL_ACTIVITY, &call[l], sizeof call[l], NULL);
    }
    const struct mp_activity link = {.value = (uint64_t)call[0].start_ns,
                                     .correlation = call[0].correlation,
                                     .kind = MP_ACTIVITY_LINK};
    mp_record_fixed(thread, MP_SPOOL_ACTIVITY, &link, sizeof link, NULL);
    for (int l = 0; l < LAUNCHES; l++)
        mp_record_fixed(thread, MP_SPOOL_ACTIVITY, &piece[l], sizeof piece[l], NULL);
}

static int record_rank(const struct ingest_work *work, int rank, struct mp_recorder *recorder,
                       struct mp_record_thread *thread, struct mp_error *error) {
    (void)rank; /* all have the same */
    record_name(thread, CALL_NAME, "cudaLaunchKernel");
    for (uint32_t i = 0; i < KERNEL_NAMES; i++) {
        char text[64];
        snprintf(text, sizeof text, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tile%u", i);
        record_name(thread, FIRST_KERNEL_NAME + i, text);
    }
    for (int64_t group = 0; group < groups_of(work); group++) {
        record_group(work, thread, group);
        if (group % 1000 == 0)
            MP_TRY(mp_recorder_flush(recorder, error));
    }
    return MP_OK;
}

int ingest_device_record(const struct ingest_work *work, struct mp_error *error) {
    return ingest_record(work, work->device, "cupti", record_rank, error);
}

static int add(struct mp_store *store, const struct ingest_work *work, const char *const paths[],
               struct mp_error *error) {
    (void)work;
    return mp_store_add_device(store, 1, paths, INGEST_RANKS, error);
}

int ingest_device_add(const struct ingest_work *work, struct mp_error *error) {
    return ingest_store(work, work->device, add, error);
}

/* ---- the floor: the store's own tables in a database without its program ---- */

enum { COLUMNS = 25 };

static const struct {
    const char *insert;
    int columns;
} tables[] = {
    [MP_ACTIVITY_KERNEL] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (run_id, rank, span_id, start, \"end\", "
         "correlationId, globalPid, deviceId, contextId, streamId, demangledName, shortName, "
         "mangledName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, "
         "staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal) VALUES "
         "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         24},
    [MP_ACTIVITY_COPY] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (run_id, rank, span_id, start, \"end\", "
         "correlationId, globalPid, deviceId, contextId, streamId, bytes, copyKind, copies, "
         "srcKind, dstKind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         15},
    [MP_ACTIVITY_SET] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (run_id, rank, span_id, start, \"end\", "
         "correlationId, globalPid, deviceId, contextId, streamId, bytes, value, memKind) VALUES "
         "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         13},
    [MP_ACTIVITY_CALL] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (run_id, rank, span_id, start, \"end\", "
         "correlationId, globalTid, nameId, returnValue) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
         9},
};
enum { TABLES = sizeof tables / sizeof *tables };

static int insert_row(sqlite3_stmt *insert, int columns, int rank, const struct mp_activity *is) {
    /* The first seven are every table's, the others begin with these. */
    const int64_t values[COLUMNS] = {1,
                                     rank,
                                     is->correlation / 4,
                                     is->start_ns,
                                     is->end_ns,
                                     is->correlation,
                                     (int64_t)4711 << 24,
                                     is->device,
                                     is->context,
                                     is->stream,
                                     is->value ? (int64_t)is->value : is->name,
                                     is->value ? is->detail : is->name,
                                     is->value ? is->result : is->name,
                                     is->registers,
                                     is->grid[0],
                                     is->grid[1],
                                     is->grid[2],
                                     is->block[0],
                                     is->block[1],
                                     is->block[2],
                                     is->static_shared,
                                     is->dynamic_shared,
                                     is->local,
                                     (int64_t)is->local_total};
    for (int c = 0; c < columns; c++)
        sqlite3_bind_int64(insert, c + 1, values[c]);
    int step = sqlite3_step(insert);
    sqlite3_reset(insert);
    return step;
}

static int insert_all(const struct ingest_work *work, sqlite3_stmt *insert[TABLES]) {
    int step = SQLITE_DONE;
    for (int rank = 0; rank < INGEST_RANKS; rank++)
        for (int64_t group = 0; group < groups_of(work); group++)
            for (int l = 0; l < LAUNCHES && step == SQLITE_DONE; l++) {
                struct mp_activity call, piece;
                make_launch(work, group, l, &call, &piece);
                step = insert_row(insert[MP_ACTIVITY_CALL], tables[MP_ACTIVITY_CALL].columns, rank,
                                  &call);
                if (step == SQLITE_DONE)
                    step = insert_row(insert[piece.kind], tables[piece.kind].columns, rank, &piece);
            }
    return step;
}

/* Makes in `floor` what the results database has of these tables, with its indexes or without. */
static int copy_schema(const struct ingest_work *work, sqlite3 *floor, bool indexed) {
    sqlite3 *results = NULL;
    sqlite3_stmt *select = NULL;
    int code = sqlite3_open_v2(work->database, &results, SQLITE_OPEN_READONLY, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(results,
                                  "SELECT sql FROM sqlite_schema WHERE tbl_name GLOB "
                                  "'CUPTI_ACTIVITY_*' AND type IN ('table', ?) ORDER BY type DESC",
                                  -1, &select, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_bind_text(select, 1, indexed ? "index" : "table", -1, SQLITE_STATIC);
    while (code == SQLITE_OK && sqlite3_step(select) == SQLITE_ROW)
        code = sqlite3_exec(floor, (const char *)sqlite3_column_text(select, 0), NULL, NULL, NULL);
    sqlite3_finalize(select);
    sqlite3_close(results);
    return code;
}

static int fill_floor(const struct ingest_work *work, sqlite3 *floor, bool indexed) {
    sqlite3_stmt *insert[TABLES] = {NULL};
    int code = copy_schema(work, floor, indexed);
    for (int i = 0; i < TABLES && code == SQLITE_OK; i++)
        code = sqlite3_prepare_v2(floor, tables[i].insert, -1, &insert[i], NULL);
    if (code == SQLITE_OK)
        code = insert_all(work, insert);
    for (int i = 0; i < TABLES; i++)
        sqlite3_finalize(insert[i]);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int ingest_device_floor(const struct ingest_work *work, struct mp_error *error) {
    return ingest_floor(work, ".floor-device0", fill_floor, false, error);
}

int ingest_device_floor_indexed(const struct ingest_work *work, struct mp_error *error) {
    return ingest_floor(work, ".floor-device1", fill_floor, true, error);
}
