/* Recordings of predicted jobs: every span, load and number, and nothing that was not told. */
#include "harness/predict/spools.h"

#include "profiler/record/spool.h"
#include "tests/harness/predict/job_support.h"

enum { MOST_NUMBERS = 4096 };

struct kept {
    int64_t spans, routes, dropped;
    int ended, texts, numbers, loads;
    struct {
        char name[32];
        int64_t iteration;
        int rank, layer;
        double value;
    } number[MOST_NUMBERS];
};

/* The sum of the numbers of a name, which must be as many, of rank 0, of no layer or of all three;
 * of the run (-1), or of every iteration. */
static double sum_of(const struct kept *kept, const char *name, int64_t first, int layer,
                     int count) {
    double sum = 0;
    int found = 0;
    for (int i = 0; i < kept->numbers; i++) {
        if (strcmp(kept->number[i].name, name) != 0)
            continue;
        assert_int_equal(kept->number[i].rank, 0);
        assert_int_equal(kept->number[i].layer, layer < 0 ? -1 : found % layer);
        assert_int_equal(kept->number[i].iteration,
                         first < 0 ? -1 : found / (layer < 0 ? 1 : layer));
        sum += kept->number[i].value;
        found++;
    }
    if (found != count)
        fail_msg("%s is there %d times, not %d", name, found, count);
    return sum;
}

/* What the summary and the predictions have said. */
static void assert_recorded(const struct kept *kept, const struct mp_prediction_summary *summary,
                            const struct mp_prediction *sum, int tokens) {
    const struct mp_memory *memory = &summary->memory;
    const struct {
        const char *name;
        double value;
    } of_run[] = {{"tokens-per-iteration", tokens},
                  {"memory-rank", summary->memory_rank},
                  {"memory-bytes", memory->total},
                  {"memory-limit-bytes", memory->limit},
                  {"memory-dense-bytes", memory->dense},
                  {"memory-expert-bytes", memory->parameters},
                  {"memory-copy-bytes", memory->copies},
                  {"memory-gradient-bytes", memory->gradients},
                  {"memory-optimizer-bytes", memory->optimizer},
                  {"memory-activation-bytes", memory->activations},
                  {"memory-buffer-bytes", memory->buffers},
                  {"out-of-memory", summary->out_of_memory}},
      of_iterations[] = {{"predicted-seconds", sum->seconds},
                         {"exposed-seconds", sum->exposed_seconds},
                         {"late-seconds", sum->late_seconds},
                         {"exchange-seconds", sum->exchange_seconds},
                         {"transfer-exposed-seconds", sum->transfer_exposed_seconds},
                         {"exchanged-bytes", sum->exchanged_bytes},
                         {"bytes-after-step", sum->bytes[MP_STAGE_AFTER_STEP]}},
      of_layers[] = {{"copies", (double)sum->copies},
                     {"bytes-before-gate", sum->bytes[MP_STAGE_BEFORE_GATE]},
                     {"bytes-after-gate", sum->bytes[MP_STAGE_AFTER_GATE]},
                     {"bytes-backward-reduce", sum->bytes[MP_STAGE_BACKWARD_REDUCE]},
                     {"routes-dropped", (double)sum->dropped}};
    for (size_t i = 0; i < sizeof of_run / sizeof *of_run; i++)
        assert_close(sum_of(kept, of_run[i].name, -1, -1, 1), of_run[i].value, 0);
    for (size_t i = 0; i < sizeof of_iterations / sizeof *of_iterations; i++)
        assert_close(sum_of(kept, of_iterations[i].name, 0, -1, 7), of_iterations[i].value, 1e-12);
    for (size_t i = 0; i < sizeof of_layers / sizeof *of_layers; i++)
        assert_close(sum_of(kept, of_layers[i].name, 0, 3, 7 * 3), of_layers[i].value, 1e-12);
}

static void read_spool(const char *path, int rank, struct kept *kept) {
    struct mp_spool_reader *reader;
    struct mp_spool_record record;
    assert_works(mp_spool_open(path, &reader, &error));
    assert_int_equal(mp_spool_header(reader)->rank, rank);
    assert_int_equal(mp_spool_header(reader)->ranks, 16);
    assert_int_equal(mp_spool_header(reader)->node, rank / 8);
    while (mp_spool_next(reader, &record, NULL) == 1) {
        kept->spans += record.type == MP_SPOOL_SPAN;
        kept->ended += record.type == MP_SPOOL_END && record.as.end.status == MP_OK;
        kept->texts += record.type == MP_SPOOL_TEXT;
        if (record.type == MP_SPOOL_NUMBER) {
            int i = kept->numbers++;
            assert_true(i < MOST_NUMBERS);
            snprintf(kept->number[i].name, sizeof kept->number[i].name, "%s",
                     record.as.number.name);
            kept->number[i].iteration = record.as.number.iteration;
            kept->number[i].rank = rank;
            kept->number[i].layer = record.as.number.layer;
            kept->number[i].value = record.as.number.value;
        }
        if (record.type == MP_SPOOL_SPAN) /* model time, not the clock's */
            assert_in_range(record.as.span.end_ns, record.as.span.start_ns, 3600000000000);
        kept->loads += record.type == MP_SPOOL_LOAD;
        for (int e = 0; record.type == MP_SPOOL_LOAD && e < record.as.load.experts; e++) {
            kept->routes += record.as.load.routes[e];
            kept->dropped += record.as.load.dropped ? record.as.load.dropped[e] : 0;
        }
    }
    assert_int_equal(mp_spool_unread(reader), 0);
    mp_spool_close(reader);
}

static bool record_step(void *context, const struct mp_prediction *prediction) {
    return mp_predict_spools_step(context, prediction, NULL) == MP_OK;
}

TEST(a_recording_has_every_span_and_route) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster =
        make_job(&job, "system=fssdp", "loads=w6 period=2 heat=0.4 seed=5");
    struct mp_predict_spools *recording;
    struct mp_prediction_summary summary;
    struct seen seen;
    static struct kept kept;
    assert_int_equal(mkdir("spools", 0777), 0);
    assert_works(mp_predict_spools_create("spools", &job, cluster, &recording, &error));
    struct mp_known_bounds *bounds;
    assert_works(mp_known_bounds_create(&bounds, &error));
    const struct mp_predict_watch watch = {recording, record_step, bounds};
    assert_works(mp_predict_job_run(&job, cluster, mp_predict_spools_sink(recording), &watch,
                                    &summary, &error));
    assert_works(mp_predict_spools_finish(&recording, MP_OK, "", &summary, &error));
    assert_null(recording);
    mp_known_bounds_destroy(bounds);
    for (int r = 0; r < 16; r++)
        read_spool(formatted("spools/rank-%04d.spool", r), r, &kept);
    watch_job("fssdp", 0, &seen, &summary);
    assert_numbers(kept.spans, seen.spans, kept.routes, seen.load_routes);
    assert_numbers(kept.routes, seen.sum.routes, kept.ended, 16);
    assert_recorded(&kept, &summary, &seen.sum, 16 * 2 * 64);
    assert_true(kept.texts > 10); /* job, cluster, assumptions */
    /* Nothing is written over. */
    assert_fails(mp_predict_spools_create("spools", &job, cluster, &recording, &error), MP_EINVAL,
                 "rank-0000.spool");
}

TEST(too_many_ranks_are_not_recorded) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep");
    struct mp_predict_spools *recording = NULL;
    assert_works(mp_cluster_set(cluster, "nodes=65", &error));
    assert_fails(mp_predict_spools_create(".", &job, cluster, &recording, &error), MP_ELIMIT,
                 "at most 512 ranks, and the cluster has 520");
    assert_null(recording);
}

TEST_GROUP(enter, leave_folder);
