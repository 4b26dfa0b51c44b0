/* Nsight Systems' exports, made by its documented schema, become runs: of one file with several
 * ranks, of several files, of old schemas, of damaged files. */
#include <sys/stat.h>

#include "harness/recordings/recordings.h"
#include "tests/harness/recordings/nsys.h"
#include "tests/results/runs.h"

static const char rules_text[] =
    "rules:\n"
    "  - {name: \"step {iteration}\", phase: iteration}\n"
    "  - {name: experts, domain: model, phase: expert, layer: payload.layer, tokens: "
    "payload.tokens, direction: forward}\n"
    "  - {name: exchange, phase: dispatch, layer: count, waits: all, bytes: payload}\n";

/* ---- reading them ---- */

static int import_files(struct runs_folder *folder, const char *const path[], int paths,
                        char said[4000], struct mp_error *failure) {
    struct mp_rules rules = {0};
    assert_works(mp_rules_parse("rules", rules_text, sizeof rules_text - 1, &rules, &error));
    const struct mp_recordings recordings = {.format = mp_recording_format_named("nsys"),
                                             .path = path,
                                             .paths = paths,
                                             .database = folder->database,
                                             .run.rules = &rules};
    FILE *stream = fmemopen(said, 4000, "w");
    int code = mp_recordings_import(&recordings, NULL, stream, failure);
    fclose(stream);
    mp_rules_destroy(&rules);
    return code;
}

/* One that can be read. */
static void import_good(struct runs_folder *folder, const struct export *export, char said[4000]) {
    const char *const path[] = {export->path};
    assert_works(import_files(folder, path, 1, said, &error));
}

RUNS_TEST(one_file_of_two_ranks) {
    struct export export;
    char said[4000] = "";
    create(&export, folder->path, "both.sqlite", false);
    set_start(&export, RUNS_T0);
    for (int rank = RANKS; rank-- > 0;)
        add_rank(&export, rank, 2 * MS, true);
    /* A launcher, which uses no GPU. */
    SQL(&export,
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES "
        "(1, 2, 59, 'launch', 123456789, 0)");
    finish(&export);
    assert_ptr_equal(mp_recording_recognise(export.path, NULL), mp_recording_format_named("nsys"));
    import_good(folder, &export, said);
    assert_rows(folder->store, "SELECT status, ranks_recorded, iterations FROM v_run",
                "complete|2|6");
    assert_rows(folder->store, "SELECT group_concat(rank || ':' || pid || ':' || host) FROM v_rank",
                "0:8000000:alpha,1:8000007:alpha");
    /* What nobody said is said. */
    assert_contains(said, "(2 processes): they are numbered from here on, in the order of",
                    "rows of the file belong to processes that used no GPU");
    /* Ranges, payloads, domains, categories. */
    assert_rows(folder->store,
                "SELECT count(*), min(layer), max(layer), sum(tokens) FROM v_span WHERE phase = "
                "'expert' AND direction = 'forward' AND rank = 1",
                "6|2|2|399");
    assert_rows(folder->store,
                "SELECT count(*), sum(bytes), sum(wait_ns) FROM v_span WHERE phase = 'dispatch' "
                "AND rank = 0",
                "6|24576|24000000");
    assert_rows(folder->store,
                "SELECT DISTINCT domain, category, payload FROM v_nvtx WHERE name = 'experts' AND "
                "rank = 0 AND payload LIKE '%65%'",
                "model|9|[{\"layer\":2,\"tokens\":65}]");
    assert_rows(folder->store,
                "SELECT DISTINCT tid, start_ns FROM v_nvtx WHERE name = 'step 0' AND rank = 1",
                "9000001|0");
    assert_rows(folder->store, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 33", "2");
    assert_rows(folder->store,
                "SELECT count(*), sum(value), count(DISTINCT kind || ms IS NULL) FROM v_nvtx WHERE "
                "name = 'loss' OR (name = 'open' AND kind = 'started' AND end_ns IS NULL)",
                "4|0.5|2");
    assert_rows(
        folder->store,
        "SELECT DISTINCT domain, payload FROM v_nvtx WHERE name = 'ncclAllReduce' AND rank = 1",
        "NCCL|[{\"Message size [bytes]\":8192}]");
    /* The GPU's work, under the spans that launched it. */
    assert_rows(folder->store,
                "SELECT count(*), sum(kernels), sum(round(kernel_ms * 1000)) FROM v_gpu WHERE rank "
                "= 1 AND phase = 'expert'",
                "6|6|18000.0");
    assert_rows(folder->store,
                "SELECT DISTINCT registersPerThread, gridX, gridY, gridZ, blockX FROM "
                "CUPTI_ACTIVITY_KIND_KERNEL",
                "32|4|5|6|128");
    assert_rows(folder->store, "SELECT sum(bytes), sum(copyKind) FROM CUPTI_ACTIVITY_KIND_MEMCPY",
                "2468|2");
}

RUNS_TEST(nccls_kernels_are_collectives) {
    char said[4000] = "";
    for (int says_nccl = 0; says_nccl < 2; says_nccl++) {
        const struct export export =
            make_export(folder->path, says_nccl ? "said.sqlite" : "plain.sqlite",
                        RUNS_T0 + says_nccl, RANKS, says_nccl);
        import_good(folder, &export, said);
        assert_int_equal(strstr(said, "NCCL's ranges are not in the file") != NULL, !says_nccl);
    }
    /* Rank 0 comes 3 ms earlier and waits for so long. */
    assert_rows(folder->store,
                "SELECT function, count(*), sum(bytes), sum(round(wait_ms)) FROM v_collective "
                "WHERE run_id = 2 AND rank = 0",
                "AllReduce|6|24576|18.0");
    assert_rows(folder->store,
                "SELECT function, count(*), sum(bytes), sum(round(wait_ms)) FROM v_collective "
                "WHERE run_id = 1 AND rank = 0",
                "AllReduce|6|NULL|18.0");
    assert_rows(folder->store,
                "SELECT count(DISTINCT communicator), count(DISTINCT ordinal), "
                "min(communicator_size) FROM v_collective WHERE run_id = 2",
                "1|6|2");
    assert_rows(
        folder->store,
        "SELECT value, count(*), sum(bytes) FROM collective JOIN StringIds ON id = datatype_id "
        "WHERE rank = 1 GROUP BY value ORDER BY value",
        "ncclBfloat16|3|24576\nncclFloat32|3|24576");
}

/* Each host started an nsys of its own, some time after the other, and its clock is off. */
RUNS_TEST(several_files_are_several_ranks) {
    struct export export;
    char said[4000] = "", path[RANKS][128];
    for (int rank = 0; rank < RANKS; rank++) {
        create(&export, folder->path, rank ? "first.sqlite" : "second.sqlite", false);
        set_start(&export, RUNS_T0 + rank * 700 * MS + rank * 40 * US);
        SQL(&export,
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (NULL, 'd', 'DeviceEnvironment', 0, "
            "'HOME=/root\nLOCAL_RANK=5\nRANKX8=1\nRANK=%d\nWORLD_SIZE=2')",
            1 - rank);
        SQL(&export, "UPDATE TARGET_INFO_SYSTEM_ENV SET value = %Q WHERE name = 'Hostname'",
            rank ? "beta" : "gamma");
        add_rank(&export, rank, rank ? 0 : 700 * MS, true);
        finish(&export);
        strcpy(path[rank], export.path);
    }
    const char *const paths[] = {path[0], path[1]};
    assert_works(import_files(folder, paths, 2, said, &error));
    assert_rows(folder->store, "SELECT group_concat(rank || ':' || pid || ':' || host) FROM v_rank",
                "0:8000007:beta,1:8000000:gamma");
    assert_null(strstr(said, "nothing says the ranks"));
    assert_contains(said, "put beside one another by 6 collectives: up to 0.040 ms apart");
    assert_rows(
        folder->store,
        "SELECT max(abs(own.end_ns - met.end_ns)) FROM v_span AS own JOIN v_span AS met USING "
        "(iteration, phase) WHERE phase = 'dispatch' AND own.rank < met.rank",
        "0");
}

RUNS_TEST(ranks_are_in_mpis_table_or_the_files_name) {
    struct export export;
    char said[4000] = "";
    static const char *const names[] = {"run.rank12.sqlite", "mpi_rank3.sqlite"};
    for (int i = 0; i < 2; i++) {
        create(&export, folder->path, names[i], false);
        if (i == 1) {
            SQL(&export,
                "CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL); "
                "INSERT INTO MPI_RANKS VALUES (%lld, 1)",
                global_of(0, TID(0)));
            SQL(&export,
                "CREATE TABLE MPI_COLLECTIVES_EVENTS (start INTEGER NOT NULL, end INTEGER, "
                "globalTid INTEGER, textId INTEGER, size INTEGER); INSERT INTO "
                "MPI_COLLECTIVES_EVENTS VALUES (100, 300, %lld, %d, 77)",
                global_of(0, TID(0)), string_id(&export, "MPI_Alltoallv"));
        }
        add_rank(&export, 0, 0, false);
        finish(&export);
        import_good(folder, &export, said);
    }
    assert_rows(folder->store, "SELECT group_concat(rank) FROM v_rank WHERE status = 'complete'",
                "12,1");
    assert_rows(folder->store,
                "SELECT domain, value, end_ns - start_ns FROM v_nvtx WHERE name = 'MPI_Alltoallv'",
                "MPI|77|200");
}

/* Exports of 2019: whose a kernel is stands nowhere, all of a value's columns are filled. */
RUNS_TEST(old_schemas_are_read) {
    struct export export;
    char said[4000] = "";
    create(&export, folder->path, "old.sqlite", true);
    for (int step = 0; step < 3; step++) {
        SQL(&export,
            "INSERT INTO NVTX_EVENTS VALUES (%d, %d, 59, 0, 0, 0, 'exchange', %lld, 0, 0, 0, 0, "
            "0.0, 0, %d, 0.0)",
            1000 * step, 1000 * step + 500, global_of(0, TID(0)), 256 + step);
        SQL(&export, "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (%d, %d, 0, %lld, %d, %d, 0)",
            1000 * step + 10, 1000 * step + 20, global_of(0, TID(0)), step + 1,
            string_id(&export, "cudaLaunchKernel"));
        SQL(&export,
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (%d, %d, 0, 1, 7, %d, %d, %d, 8, 1, 1, "
            "1, 1, 1, 1)",
            1000 * step + 30, 1000 * step + 130, step + 1, string_id(&export, "gemm"), export.rows);
    }
    SQL(&export,
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (5000, NULL, "
        "59, 'open', %lld), (5001, NULL, 34, 'mark', %lld)",
        global_of(0, TID(0)), global_of(0, TID(0)));
    finish(&export);
    import_good(folder, &export, said);
    assert_contains(said, "the file has no time at which the session began\n");
    assert_rows(folder->store, "SELECT count(*), sum(bytes) FROM v_span WHERE phase = 'dispatch'",
                "3|771");
    assert_rows(folder->store,
                "SELECT sum(kernels), sum(round(kernel_ms * 1e6)) FROM v_gpu WHERE phase = "
                "'dispatch'",
                "3|300.0");
    assert_rows(folder->store,
                "SELECT count(*) FROM v_nvtx WHERE (name = 'open' AND end_ns IS NULL AND kind "
                "= 'pushed') OR (name = 'mark' AND kind = 'mark')",
                "2");
}

RUNS_TEST(missing_tables_are_said) {
    struct export export;
    char said[4000] = "";
    create(&export, folder->path, "little.sqlite", false);
    set_start(&export, RUNS_T0);
    add_rank(&export, 0, 0, false);
    run_sql(&export, "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE StringIds; DROP TABLE "
                     "META_DATA_EXPORT; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY");
    finish(&export);
    import_good(folder, &export, said);
    assert_contains(said, "the file has no names but those that stand in the ranges "
                          "themselves, no calls of CUDA, so that kernels belong to no span");
    assert_rows(folder->store, "SELECT count(*) FROM v_span WHERE phase = 'dispatch'", "6");
    assert_rows(folder->store, "SELECT kernels, span_id FROM v_gpu", "12|NULL");
    assert_rows(folder->store, "SELECT status FROM v_run", "complete");
}

/* ---- what can't be read ---- */

static void refuse(struct runs_folder *folder, const char *path, int expected, const char *words) {
    const char *const paths[] = {path};
    char said[4000] = "";
    assert_fails(import_files(folder, paths, 1, said, &error), expected, words);
    assert_rows(folder->store, "SELECT count(*) FROM run", "0");
}

RUNS_TEST(what_is_no_export_is_refused) {
    struct export export;
    char path[128];
    snprintf(path, sizeof path, "%s/none.sqlite", folder->path);
    refuse(folder, path, MP_ENOTFOUND, "there is no such file");
    FILE *file = fopen(path, "w");
    fputs("SQLite format 3", file);
    for (int i = 0; i < 400; i++)
        fputs("not at all ", file);
    fclose(file);
    refuse(folder, path, MP_EFORMAT, "can't be read as an SQLite file");
    snprintf(path, sizeof path, "%s/report.nsys-rep", folder->path);
    fclose(fopen(path, "w"));
    refuse(folder, path, MP_EFORMAT, "nsys export --type sqlite");
    create(&export, folder->path, "empty.sqlite", false);
    finish(&export);
    refuse(folder, export.path, MP_EFORMAT, "no process has a range or a kernel in it");
    /* moeperf's own databases are like an export, and none. */
    refuse(folder, folder->database, MP_EINVAL, "a database of moeperf, and no recording");
}

/* Cut at every so many bytes: what was before is there, the rest is said, or it is refused. */
RUNS_TEST(a_damaged_file_gives_what_is_before_the_damage) {
    size_t size;
    char said[4000];
    int kept = 0, refused = 0;
    const struct export whole = make_export(folder->path, "whole.sqlite", RUNS_T0, RANKS, true);
    AUTO(text) char *bytes = read_bytes(whole.path, &size);
    for (int part = 1; part < 12; part++) {
        char path[160];
        snprintf(path, sizeof path, "%s/cut%d.sqlite", folder->path, part);
        write_bytes(path, bytes, size * (size_t)part / 12);
        const char *const paths[] = {path};
        struct mp_error error = {0};
        memset(said, 0, sizeof said);
        if (import_files(folder, paths, 1, said, &error) == MP_OK) {
            kept++;
            assert_contains(said, "what comes behind is missing");
        } else {
            refused++;
            assert_contains(error.text, path);
        }
    }
    print_message("of 11 cut files %d are kept in part, %d refused\n", kept, refused);
    assert_true(kept >= 3 && refused >= 1);
    assert_rows(
        folder->store,
        "SELECT count(*) FROM v_run WHERE status = 'interrupted' AND job NOT LIKE '%(others)'",
        formatted("%d", kept));
}

/* Any bytes changed: the file is read or refused, and the database is whole. */
RUNS_TEST(changed_bytes_do_no_harm) {
    size_t size;
    char path[160], said[4000];
    uint64_t seed = test_seed();
    int read = 0;
    const struct export whole = make_export(folder->path, "whole.sqlite", RUNS_T0, 1, true);
    AUTO(text) char *bytes = read_bytes(whole.path, &size);
    snprintf(path, sizeof path, "%s/changed.sqlite", folder->path);
    const char *const paths[] = {path};
    for (int round = 0; round < 30; round++) {
        write_bytes(path, bytes, size);
        FILE *file = fopen(path, "r+");
        for (int i = test_random_int(&seed, 1, 40); i > 0; i--) {
            fseek(file, test_random_int(&seed, 0, (int)size - 1), SEEK_SET);
            fputc(test_random_int(&seed, 0, 255), file);
        }
        fclose(file);
        memset(said, 0, sizeof said);
        read += import_files(folder, paths, 1, said, NULL) == MP_OK;
    }
    print_message("%d of 30 changed files are read\n", read);
    assert_rows(folder->store, "PRAGMA integrity_check", "ok");
}
