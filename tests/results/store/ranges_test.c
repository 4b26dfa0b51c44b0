/* Ranges of annotated programs: what a spool says of them stands in the tables that Nsight has. */
#include "tests/records.h"
#include "tests/results/runs.h"

static const struct runs_standard two = {.count = 2, .ms = {20, 30}, .loss = {3, 2}};

static void name(struct runs_rank *own, uint32_t id, uint32_t kind, uint32_t domain,
                 uint32_t number, const char *text) {
    mp_record_add(own->compute,
                  &(struct mp_spool_record){.type = MP_SPOOL_NAME,
                                            .as.name = {id, kind, domain, number, text}});
}

/* Times in microseconds of the run; an end of 0 is none. */
static void range(struct runs_rank *own, struct mp_range is) {
    is.start_ns = runs_clock(own->rank, is.start_ns * 1000);
    is.end_ns = is.end_ns ? runs_clock(own->rank, is.end_ns * 1000) : 0;
    put_range(own->compute, is);
}

static void annotate(struct runs_rank *own) {
    static const struct mp_range of_values[] = {
        {.value_type = MP_VALUE_U64, .value = (uint64_t)1 << 40},
        {.value_type = MP_VALUE_I64, .value = (uint64_t)-5},
        {.value_type = MP_VALUE_DOUBLE, .value = UINT64_C(0x4004000000000000)}, /* 2.5 */
        {.value_type = MP_VALUE_U32, .value = 0xFFFFFFFF},
        {.value_type = MP_VALUE_I32, .value = 0xFFFFFFFD},   /* -3 */
        {.value_type = MP_VALUE_FLOAT, .value = 0x3F000000}, /* 0.5 */
    };
    range(own, (struct mp_range){.start_ns = 1000,
                                 .end_ns = 3000,
                                 .name = 2000, /* its name comes later */
                                 .domain = 4,
                                 .thread = 100,
                                 .category = 7,
                                 .color = 0xFF00FF00,
                                 .kind = MP_RANGE_PUSHED,
                                 .level = 2});
    name(own, 3, MP_NAME_DOMAIN, 0, 0, "first");
    name(own, 4, MP_NAME_DOMAIN, 0, 0, "second");
    name(own, 5, MP_NAME_CATEGORY, 4, 7, "files");
    name(own, 6, MP_NAME_THREAD, 0, 100,
         "load\xff"
         "er"); /* no UTF-8 */
    name(own, 2000, MP_NAME_STRING, 0, 0, "step");
    name(own, 2001, MP_NAME_STRING, 0, 0, "a longer name than those before it");
    name(own, 2002, MP_NAME_STRING, 0, 0, "step"); /* the same string */
    name(own, 1u << 22, MP_NAME_DOMAIN, 0, 0, "beyond what a collector counts");
    range(own, (struct mp_range){.start_ns = 2000,
                                 .end_ns = 9000,
                                 .name = 2001,
                                 .domain = 3,
                                 .thread = 100,
                                 .end_thread = 101,
                                 .kind = MP_RANGE_STARTED,
                                 .level = 5});
    range(own, (struct mp_range){
                   .start_ns = 4000, .name = 2002, .end_thread = 101, .kind = MP_RANGE_STARTED});
    range(own, (struct mp_range){.start_ns = 5000,
                                 .end_ns = 5000,
                                 .name = 999, /* nobody said which */
                                 .domain = 1u << 23,
                                 .end_thread = 101,
                                 .kind = MP_RANGE_MARK,
                                 .level = 1});
    range(own, (struct mp_range){.start_ns = 6000, .kind = MP_RANGE_MARK + 1});
    for (int v = 0; v < 6; v++) {
        struct mp_range mark = of_values[v];
        mark.start_ns = 7000 + v;
        mark.kind = MP_RANGE_MARK;
        range(own, mark);
    }
}

RUNS_TEST(ranges_become_rows) {
    struct runs_rank ranks[2];
    struct mp_store_run description = runs_description("EP", "synthetic");
    int64_t run_id = 0;
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        runs_standard_rank(&ranks[r], &two);
        if (r)
            annotate(&ranks[r]);
    }
    run_id = runs_ingest(folder, &description, ranks, 2);
    assert_rows(folder->store,
                "SELECT (start + 500) / 1000, (\"end\" + 500) / 1000, eventType, category, color, "
                "globalTid & 0xFFFFFF, endGlobalTid & 0xFFFFFF, StringIds.value, domainId, level "
                "FROM NVTX_EVENTS LEFT JOIN StringIds ON StringIds.id = textId WHERE eventType < "
                "70 AND start > 0 AND start < 7000000 AND eventType <> 33 ORDER BY start",
                "1000|3000|59|7|4278255360|100|NULL|step|2|2\n"
                "2000|9000|60|NULL|NULL|100|101|a longer name than those before it|1|NULL\n"
                "4000|NULL|60|NULL|NULL|0|NULL|step|0|NULL\n"
                "5000|NULL|34|NULL|NULL|0|NULL|NULL|0|NULL");
    assert_rows(folder->store,
                "SELECT eventType, start, category, domainId, StringIds.value, rank FROM "
                "NVTX_EVENTS JOIN StringIds ON StringIds.id = textId WHERE eventType IN (33, 75) "
                "ORDER BY eventType, domainId",
                "33|0|7|2|files|1\n75|0|NULL|1|first|1\n75|0|NULL|2|second|1");
    assert_rows(folder->store,
                "SELECT uint64Value, int64Value, doubleValue, uint32Value, int32Value, floatValue, "
                "jsonText FROM NVTX_EVENTS WHERE start >= 7000000 ORDER BY start",
                "1099511627776|NULL|NULL|NULL|NULL|NULL|NULL\n"
                "NULL|-5|NULL|NULL|NULL|NULL|NULL\n"
                "NULL|NULL|2.5|NULL|NULL|NULL|NULL\n"
                "NULL|NULL|NULL|4294967295|NULL|NULL|NULL\n"
                "NULL|NULL|NULL|NULL|-3|NULL|NULL\n"
                "NULL|NULL|NULL|NULL|NULL|0.5|NULL");
    char expected[128];
    int64_t process = (int64_t)(getpid() & 0xFFFFFF) << 24;
    snprintf(expected, sizeof expected, "load\\xffer|%lld|1", (long long)(process | 100));
    assert_rows(folder->store,
                "SELECT StringIds.value, globalTid, rank FROM ThreadNames JOIN StringIds ON "
                "StringIds.id = nameId",
                expected);
    snprintf(expected, sizeof expected, "%lld|%lld|1", (long long)(process | 100),
             (long long)run_id);
    assert_rows(folder->store,
                "SELECT DISTINCT globalTid, run_id, rank FROM NVTX_EVENTS WHERE level = 2",
                expected);
    assert_rows(folder->store, "SELECT count(*) FROM NVTX_EVENTS", "13");
}
