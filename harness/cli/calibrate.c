/* moeperf calibrate: measures this machine into a cluster file.
 *
 * The ranks measure (moeperf-train --calibrate); here they are started and watched, and what they
 * wrote is read once before it takes the file's name. */
#include "harness/cli/cli.h"
#include "harness/cluster/cluster.h"
#include "harness/suite/launch.h"
#include "harness/suite/paths.h"
#include "harness/suite/progress.h"
#include "reference/base/whole_file.h"

enum { TIMEOUT_SECONDS = 900, RANKS_MOST = 1024 };

static struct {
    const char *output, *launcher, *trainer;
    int ranks, threads; /* 0 ranks: as the machine has cores */
    bool quick, quiet;
} given = {.threads = 1};

struct watched {
    struct mp_progress progress;
    struct mp_estimate *estimate;
};

static const struct cli_flag known_flags[] = {
    {"-o", CLI_VALUE, &given.output, "FILE", "cluster file to write, NAME.yaml"},
    {"--ranks", CLI_COUNT, CLI_NUMBER(&given.ranks, 1, RANKS_MOST), "N",
     "processes that measure together (2; 1 with a single core)"},
    {"--threads", CLI_COUNT, CLI_NUMBER(&given.threads, 1, RANKS_MOST), "N", "threads of each (1)"},
    {"--quick", CLI_SWITCH, &given.quick, NULL,
     "fewer sizes, in one round: a few seconds instead of up to a minute"},
    {"--launcher", CLI_VALUE, &given.launcher, "TEMPLATE",
     "starts ranks with this instead of mpirun, for example\n"
     "\"srun -n {ranks} {program} {arguments}\""},
    {"--trainer", CLI_VALUE, &given.trainer, "PATH",
     "program of a rank (moeperf-train beside moeperf)"},
    {"--quiet", CLI_SWITCH, &given.quiet, NULL, "no progress"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf calibrate -o FILE [options]",
    "Measures this machine with the operations that the trainer calls and writes a\n"
    "cluster that predictions can be made for: every number says that it was measured,\n"
    "when, and with how many ranks.  Ranks measure together, since in training they\n"
    "share memory and cores, so give as many ranks and threads as the jobs will have,\n"
    "and let nothing else run.  Every figure is the median of five rounds: what is\n"
    "sustained, not the fastest moment.\n\n"
    "measured: matrix products by tokens and width (peak, efficiency), the smallest\n"
    "product (launch), large copies (memory-bandwidth), and in bytes/s gelu with layer\n"
    "norm (elementwise) and AdamW (update); attention's share of the peak (attention);\n"
    "copies on a rank (level self); with several ranks exchanges by size, whose line is\n"
    "latency and bandwidth of level node, and the share of a transfer that passes\n"
    "beside products (overlap).\n\n"
    "Predictions of what moeperf-train does need to be told what it is: the last\n"
    "example.",
    known_flags,
    0,
    0,
    "  moeperf calibrate -o here.yaml\n"
    "  moeperf calibrate -o here.yaml --ranks 4 --threads 2\n"
    "  moeperf show here.yaml\n"
    "  moeperf predict --cluster here.yaml --suite skewed --set predict.precision=fp32 \\\n"
    "    --set predict.gradient-bytes=4 --set predict.optimizer-bytes=8 \\\n"
    "    --set predict.attention=flash --set predict.vocabulary=256\n"};

static void watch(void *context, const struct mp_launch_progress *at) {
    struct watched *watched = context;
    struct mp_progress_state state = {.job = 1,
                                      .jobs = 1,
                                      .name = "calibrate",
                                      .iteration = at->iteration,
                                      .iterations = at->iterations,
                                      .ms = at->ms};
    mp_estimate_update(watched->estimate, at->iteration, at->iterations);
    mp_estimate_read(watched->estimate, &state.share, &state.seconds_left);
    mp_progress_draw(&watched->progress, &state);
}

/* Runs the ranks, which write the file. */
static int measure(const struct mp_command *command, struct mp_error *error) {
    struct watched watched;
    struct mp_launch_result result;
    const struct mp_launch launch = {.command = command,
                                     .threads = given.threads,
                                     .timeout = TIMEOUT_SECONDS,
                                     .signals = cli_count_signals(),
                                     .watch = watch,
                                     .context = &watched};
    MP_TRY(mp_estimate_create(1, 1, &watched.estimate, error));
    mp_estimate_begin_job(watched.estimate);
    mp_progress_begin(&watched.progress, given.quiet ? NULL : stderr);
    int code = mp_launch_run(&launch, &result, error);
    mp_progress_end(&watched.progress);
    mp_estimate_destroy(watched.estimate);
    if (code || result.end == MP_LAUNCH_COMPLETE)
        return code;
    return mp_fail(error, result.end == MP_LAUNCH_INTERRUPTED ? MP_EINTERRUPTED : MP_EIO,
                   "nothing was written: %s", result.reason);
}

static int create_command(const char *partial, struct mp_command *command, struct mp_error *error) {
    char trainer[MP_PATH_SIZE], threads[16];
    const char *arguments[] = {"--calibrate", partial,      "--threads",
                               threads,       "--progress", given.quick ? "--quick" : NULL,
                               NULL};
    snprintf(threads, sizeof threads, "%d", given.threads);
    if (given.trainer)
        snprintf(trainer, sizeof trainer, "%s", given.trainer);
    else
        MP_TRY(mp_path_program("moeperf-train", trainer, error));
    return mp_command_create(given.launcher, given.ranks, trainer, arguments, command, error);
}

static void print_summary(const struct mp_cluster *cluster, const char *path) {
    printf("%s: %s: %.4g GFLOP/s in fp32, memory %.3g GB/s", path, cluster->description,
           1e-9 * cluster->peak[MP_FP32].value, 1e-9 * cluster->memory_bandwidth.value);
    if (cluster->levels > 1)
        printf(", exchange %.3g us + %.3g GB/s", 1e6 * cluster->level[1].latency.value,
               1e-9 * mp_cluster_bandwidth(cluster, 1));
    printf("\nmoeperf show %s has every number\n", path);
}

/* The ranks write into the place of a file that is not whole yet, and what they wrote takes its
 * name if it can be read. */
static int calibrate(const struct cli_call *call, struct mp_error *error) {
    (void)call;
    struct cli_machine machine;
    MP_AUTO(whole_file) struct mp_whole_file file = {0};
    MP_AUTO(command) struct mp_command command = {0};
    MP_AUTO(cluster) struct mp_cluster *cluster = NULL;
    cli_machine_read(&machine);
    if (!given.output)
        return mp_fail(error, MP_EINVAL, "where to? -o FILE names the cluster file to write");
    if (!given.ranks)
        given.ranks = machine.cores > 1 ? 2 : 1;
    MP_TRY(mp_whole_file_open(&file, given.output, error));
    if (!file.partial)
        return mp_fail(error, MP_EINVAL, "%s is there and no file; a cluster can't take its place",
                       given.output);
    MP_TRY(create_command(file.partial, &command, error));
    MP_TRY(measure(&command, error));
    MP_TRY(mp_cluster_load(file.partial, &cluster, error));
    MP_TRY(mp_whole_file_close(&file, MP_OK, error));
    print_summary(cluster, given.output);
    return MP_OK;
}

const struct cli_command cli_calibrate = {"calibrate", "measures this machine as a cluster",
                                          calibrate, .usage = &usage};
