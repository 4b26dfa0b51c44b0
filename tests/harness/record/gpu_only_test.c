/* Programs without NVTX ranges: what collectors of GPU work left of their processes is kept. */

#include "profiler/device/companion.h"
#include "profiler/record/format.h"
#include "tests/harness/record/kept.h"
#include "tests/records.h"

enum { MOST = 5 };

struct program {
    int processes, kernels[MOST], rank[MOST];
    bool has_ranks, is_killed; /* by a launcher; the last process */
    int64_t collectives, kernel_ns;
};

static void open_collector(struct mp_companion *companion, const char *collector) {
    if (mp_companion_open(companion, collector, NULL))
        _exit(1);
}

static void be_a_process(const struct program *program, int which) {
    struct mp_companion cupti, nccl;
    char number[12];
    snprintf(number, sizeof number, "%d", program->rank[which]);
    if (program->has_ranks)
        setenv("RANK", number, 1);
    open_collector(&cupti, "cupti");
    open_collector(&nccl, "nccl");
    mp_companion_status(&cupti, "cupti", which > 0 ? "on" : "no CUPTI");
    if (program->is_killed && which == program->processes - 1)
        _exit(0);
    mp_companion_status(&nccl, "nccl", "on");
    for (int i = 0; i < program->kernels[which]; i++) {
        const struct mp_activity kernel = {.start_ns = RUNS_T0 + 2 * i * program->kernel_ns,
                                           .end_ns = RUNS_T0 + (2 * i + 1) * program->kernel_ns,
                                           .name = mp_companion_name(&cupti, "gemm"),
                                           .kind = MP_ACTIVITY_KERNEL};
        put_activity(cupti.thread, kernel);
    }
    for (int i = 0; i < program->collectives; i++) {
        const struct mp_collective is = {.start_ns = RUNS_T0 + i,
                                         .communicator = 7,
                                         .sequence = (uint64_t)i + 1,
                                         .count = 10,
                                         .function = mp_companion_name(&nccl, "AllReduce"),
                                         .datatype = mp_companion_name(&nccl, "ncclFloat32"),
                                         .rank = which,
                                         .ranks = program->processes};
        put_collective(nccl.thread, is);
    }
    mp_companion_close(&nccl);
    mp_companion_close(&cupti);
    _exit(0);
}

/* Processes begin one after the other, so that those without ranks get them in this order. */
static struct program run_program(const char *spools) {
    uint64_t seed = test_seed();
    struct program program = {.processes = test_random_int(&seed, 1, MOST),
                              .has_ranks = test_random_int(&seed, 0, 1),
                              .is_killed = test_random_int(&seed, 0, 1),
                              .collectives = test_random_int(&seed, 1, 9),
                              .kernel_ns = test_random_int(&seed, 1000, 100000)};
    int shift = test_random_int(&seed, 0, program.processes - 1);
    setenv("MOEPERF_DEVICE_SPOOLS", spools, 1);
    for (int i = 0; i < program.processes; i++) {
        program.rank[i] = program.has_ranks ? (i + shift) % program.processes : i;
        program.kernels[i] = test_random_int(&seed, 1, 20);
        pid_t child = fork();
        if (child == 0)
            be_a_process(&program, i);
        assert_int_equal(end_of_process(child), 0);
    }
    if (program.is_killed)
        program.kernels[program.processes - 1] = 0;
    return program;
}

static void assert_answer(struct runs_folder *folder, int64_t expected, const char *sql) {
    assert_rows(folder->store, sql, formatted("%lld", (long long)expected));
}

static void check_run(struct runs_folder *folder, const struct program *program) {
    int living = program->processes - program->is_killed;
    char sql[200];
    assert_answer(folder, 1, "SELECT count(*) FROM run");
    assert_answer(folder, program->processes, "SELECT ranks FROM v_run");
    assert_answer(folder, program->processes, "SELECT ranks_recorded FROM v_run");
    assert_answer(folder, 1, "SELECT started_at > '2020' FROM v_run");
    assert_answer(folder, living, "SELECT count(*) FROM v_rank WHERE status = 'complete'");
    assert_answer(folder, living,
                  "SELECT count(*) FROM v_rank WHERE pid > 0 AND reason IS NULL AND spans IS NULL");
    assert_answer(folder, program->is_killed, "SELECT count(*) FROM v_rank WHERE status = 'cut'");
    assert_answer(folder, 0, "SELECT count(*) FROM span");
    assert_answer(folder, 2 * program->processes, "SELECT count(*) FROM device_spool");
    assert_answer(folder, living * program->collectives, "SELECT count(*) FROM v_collective");
    for (int i = 0; i < program->processes; i++) {
        snprintf(sql, sizeof sql,
                 "SELECT coalesce(sum(kernels), 0) || ' ' || CAST(round(coalesce(sum(gpu_ms), 0) * "
                 "1e6) AS INTEGER) = '%d %lld' FROM v_gpu WHERE rank = %d",
                 program->kernels[i], (long long)program->kernels[i] * program->kernel_ns,
                 program->rank[i]);
        assert_answer(folder, 1, sql);
    }
}

static int keep(struct runs_folder *folder, const char *spools, bool keep_spools, char said[2000],
                struct mp_error *error) {
    const struct mp_record_run run = {.spools = spools, .keep_spools = keep_spools};
    return keep_run(folder, run, NULL, said, 2000, error);
}

static void assert_line(const char *said, const char *words, int processes) {
    if (processes > 0)
        assert_contains(
            said, formatted("%s in %d process%s\n", words, processes, processes == 1 ? "" : "es"));
}

RUNS_TEST_ALONE(gpu_work_is_kept_without_ranges) {
    char spools[SPOOLS_SIZE], damaged[100], said[2000] = "";
    make_spools(folder, spools);
    snprintf(damaged, sizeof damaged, "%s/damaged.device", spools);
    const struct program program = run_program(spools);
    fclose(fopen(damaged, "w"));
    for (int again = 0; again < 3; again++) { /* kept, and added once */
        assert_works(keep(folder, spools, again < 2, said, &error));
        check_run(folder, &program);
        assert_contains(said,
                        formatted("%d process%s, no NVTX range\n", program.processes,
                                  program.processes == 1 ? "" : "es"),
                        "no straggler report", "left out: ");
        assert_line(said, "cupti: off, no CUPTI", 1);
        assert_line(said, "cupti: on", program.processes - 1);
        if (program.is_killed)
            assert_contains(said, formatted("GPU work of rank %d: off, its collector was killed ",
                                            program.rank[program.processes - 1]));
        assert_line(said, "nccl: on", program.processes - program.is_killed);
    }
    assert_int_equal(unlink(damaged), 0);
    assert_int_equal(rmdir(spools), 0); /* nothing else has stayed */
}

RUNS_TEST_ALONE(a_program_that_left_nothing_is_no_run) {
    char spools[SPOOLS_SIZE], said[2000] = "";
    make_spools(folder, spools);
    assert_fails(keep(folder, spools, false, said, &error), MP_ENOTFOUND,
                 "program: no process has made an NVTX range");
    assert_answer(folder, 0, "SELECT count(*) FROM run");
    assert_int_equal(access(spools, F_OK), -1);
}
