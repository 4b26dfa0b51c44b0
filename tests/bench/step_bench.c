/* Step: what a whole training step gets of the machine, and what recording it costs.
 *
 * The quickstart suite's model on one rank and one thread.  Recorded and unrecorded iterations take
 * turns in one process, each beside one large matrix product, so that a busy machine disturbs all
 * alike; the cost of recording is the median over the pairs. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "baselines/systems.h"
#include "reference/base/median.h"
#include "reference/base/random.h"
#include "reference/trainer/trainer.h"
#include "tests/bench/bench.h"

enum { LARGE = 1024, MOST_PAIRS = 1000 };

struct step_bench {
    struct mp_job_file file;
    struct mp_comm *comm;
    struct mp_trainer *trainer;
    struct mp_recorder *recorder;
    struct mp_record_thread *compute, *communication;
    char folder[MP_BENCH_FOLDER], spool[MP_BENCH_FOLDER + 32];
    int32_t *token, *target;
    float *matrix; /* three of LARGE x LARGE */
    double off[MOST_PAIRS], on[MOST_PAIRS], ratio[MOST_PAIRS], large[MOST_PAIRS];
};

static double seconds_since(int64_t start_ns) {
    return 1e-9 * (double)(mp_clock_ns() - start_ns);
}

static int create_trainer(struct step_bench *bench, struct mp_error *error) {
    static const char *const settings[] = {"system=fssdp", "text=-", "ranks=1"};
    struct mp_systems systems = {0};
    MP_TRY(mp_systems_register_all(&systems, error));
    MP_TRY(mp_job_file_create(&bench->file, error));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        MP_TRY(mp_job_set(&bench->file, NULL, settings[i], &systems, error));
    MP_TRY(mp_comm_self_create(&bench->comm, error));
    MP_TRY(mp_trainer_create(&bench->file, bench->comm, NULL, NULL, &bench->trainer, error));
    size_t tokens = (size_t)mp_trainer_model(bench->trainer)->tokens;
    struct mp_device *device = mp_trainer_model(bench->trainer)->device;
    bench->token = malloc(2 * tokens * sizeof *bench->token);
    bench->matrix = device->operations->allocate(device, 3 * sizeof(float) * LARGE * LARGE);
    if (!bench->token || !bench->matrix)
        return mp_fail(error, MP_ENOMEM, "no memory for the benchmark");
    bench->target = bench->token + tokens;
    for (size_t i = 0; i < 2 * tokens; i++)
        bench->token[i] = (int32_t)mp_random_below(1, 2, i, MP_VOCABULARY);
    mp_random_normal(1, 3, 1, 3 * LARGE * LARGE, bench->matrix);
    return MP_OK;
}

static int create_recorder(struct step_bench *bench, struct mp_error *error) {
    MP_TRY(mp_bench_make_folder(bench->folder, error));
    snprintf(bench->spool, sizeof bench->spool, "%s/rank-0000.spool", bench->folder);
    struct mp_recorder_config config = {.path = bench->spool, .rank = 0, .ranks = 1};
    MP_TRY(mp_recorder_create(&config, &bench->recorder, error));
    MP_TRY(mp_recorder_thread(bench->recorder, "compute", &bench->compute, error));
    return mp_recorder_thread(bench->recorder, "comm", &bench->communication, error);
}

static void destroy(struct step_bench *bench) {
    if (bench->trainer) {
        struct mp_device *device = mp_trainer_model(bench->trainer)->device;
        device->operations->release(device, bench->matrix);
    }
    mp_recorder_finish(&bench->recorder, MP_OK, "", NULL);
    mp_trainer_destroy(bench->trainer);
    mp_comm_destroy(bench->comm);
    mp_job_file_destroy(&bench->file);
    free(bench->token);
    unlink(bench->spool); /* "", if there is none */
    rmdir(bench->folder);
}

/* One iteration and, when recorded, its flush: what a run pays. */
static int time_step(struct step_bench *bench, bool recorded, double *seconds,
                     struct mp_error *error) {
    struct mp_trainer_result result;
    mp_trainer_record(bench->trainer, recorded ? bench->compute : NULL,
                      recorded ? bench->communication : NULL);
    int64_t start = mp_clock_ns();
    MP_TRY(mp_trainer_step_on(bench->trainer, bench->token, bench->target, &result, error));
    if (recorded)
        MP_TRY(mp_recorder_flush(bench->recorder, error));
    *seconds = seconds_since(start);
    return MP_OK;
}

static double time_large(struct step_bench *bench) {
    struct mp_model *model = mp_trainer_model(bench->trainer);
    float *a = bench->matrix, *b = a + LARGE * LARGE, *c = b + LARGE * LARGE;
    int64_t start = mp_clock_ns();
    model->device->operations->gemm(model->device, model->stream, false, false, LARGE, LARGE, LARGE,
                                    1, a, LARGE, b, LARGE, 0, c, LARGE);
    model->device->operations->stream_synchronize(model->device, model->stream);
    return seconds_since(start);
}

static int measure(struct step_bench *bench, int pairs, struct mp_error *error) {
    double unused;
    MP_TRY(time_step(bench, false, &unused, error));
    MP_TRY(time_step(bench, true, &unused, error));
    for (int i = 0; i < pairs; i++) {
        bool first = i % 2; /* which of the two goes first changes from pair to pair */
        MP_TRY(time_step(bench, first, first ? &bench->on[i] : &bench->off[i], error));
        bench->large[i] = time_large(bench);
        MP_TRY(time_step(bench, !first, first ? &bench->off[i] : &bench->on[i], error));
        bench->ratio[i] = bench->on[i] / bench->off[i];
    }
    return MP_OK;
}

static int report(struct step_bench *bench, int pairs, json_t *result, struct mp_error *error) {
    struct mp_model *model = mp_trainer_model(bench->trainer);
    double step = mp_median_of(bench->off, pairs);
    double flops = (double)mp_model_iteration_flops(&model->shape, model->tokens);
    double peak = 2.0 * LARGE * LARGE * LARGE / mp_median_of(bench->large, pairs);
    int64_t bytes, spans;
    mp_recorder_totals(bench->recorder, &bytes, &spans);
    return mp_bench_add(result,
                        json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "pairs", pairs,
                                  "tokens", model->tokens, "ms_per_iteration", 1e3 * step,
                                  "tokens_per_s", model->tokens / step, "model_gflops",
                                  1e-9 * flops / step, "large_gemm_gflops", 1e-9 * peak,
                                  "model_flop_utilisation", flops / step / peak, "recording_share",
                                  mp_median_of(bench->ratio, pairs) - 1, "spans_per_iteration",
                                  (json_int_t)(spans / (pairs + 1))),
                        error);
}

static int run_all(struct step_bench *bench, int pairs, json_t *result, struct mp_error *error) {
    MP_TRY(create_trainer(bench, error));
    MP_TRY(create_recorder(bench, error));
    MP_TRY(measure(bench, pairs, error));
    return report(bench, pairs, result, error);
}

static const struct mp_option step_options[] = {
    MP_BENCH_NUMBER("pairs", pairs, "40", 1, MOST_PAIRS,
                    "pairs of a recorded and an unrecorded iteration"),
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    static struct step_bench bench;
    int code = run_all(&bench, options->pairs, result, error);
    destroy(&bench);
    return code;
}

const struct mp_bench mp_bench_step = {
    .name = "step",
    .help = "a whole training step: model-FLOP utilisation, and what recording costs",
    .options = step_options,
    .run = run,
};
