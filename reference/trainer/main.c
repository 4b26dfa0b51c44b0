/* moeperf-train: trains one job, or serves it; one process per rank. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "baselines/systems.h"
#include "profiler/record/record.h"
#include "reference/base/characters.h"
#include "reference/base/median.h"
#include "reference/machine/machine.h"
#include "reference/plan/arguments.h"
#include "reference/trainer/checkpoint.h"
#include "reference/trainer/place.h"
#include "reference/trainer/target.h"
#include "reference/trainer/trainer.h"
#include "reference/trainer/version.h"

/* ---- environment: what a run's figures depend on besides the job ---- */

/* Processor, cores this process may use, memory, kernel, host, compiler and flags, revision of the
 * build, command line.  Names begin with "environment.". */
static void environment_record(struct mp_record_thread *thread, int argc, char *const argv[]) {
    char text[4096];
    struct utsname system;
    cpu_set_t cores;
    mp_machine_processor(text, sizeof text);
    mp_record_text(thread, "environment.cpu", text);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        snprintf(text, sizeof text, "%d", CPU_COUNT(&cores));
        mp_record_text(thread, "environment.cores", text);
    }
    snprintf(text, sizeof text, "%lld",
             (long long)sysconf(_SC_PHYS_PAGES) * (long long)sysconf(_SC_PAGESIZE));
    mp_record_text(thread, "environment.memory-bytes", text);
    if (uname(&system) == 0) {
        snprintf(text, sizeof text, "%s %s", system.sysname, system.release);
        mp_record_text(thread, "environment.kernel", text);
        mp_record_text(thread, "environment.host", system.nodename);
    }
    mp_record_text(thread, "environment.compiler", mp_compiler());
    mp_record_text(thread, "environment.revision", mp_revision());
    *text = '\0';
    for (int i = 0; i < argc; i++)
        mp_text_add(text, sizeof text, " ", "%s", argv[i]);
    mp_record_text(thread, "environment.command", text);
}

/* ---- signals ---- */

/* Signals that end a run: SIGINT, SIGTERM, and SIGHUP unless it is ignored (nohup).
 *
 * A thread waits for them; nothing handles them.  A handler would be called on the stack of what it
 * interrupts, and oneDNN's products of 32-bit floats with AVX-512 point the stack pointer at a
 * block of the heap where the inner dimension is long (oneDNN 2.7, jit_avx512_common_gemm_f32): the
 * signal's frame, some 3 KB, would lie over whatever is before that block. */
static struct {
    pthread_mutex_t lock; /* of trainer */
    struct mp_trainer *trainer;
    pthread_t thread;
    bool watches;
} signals = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void list_signals(sigset_t *set) {
    struct sigaction before;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

/* Holds them back, in the calling thread and in all that it creates: to be called before there are
 * others. */
static void signals_hold(void) {
    sigset_t set;
    list_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool ask_trainer(void) {
    pthread_mutex_lock(&signals.lock);
    bool asked = signals.trainer != NULL;
    if (asked)
        mp_trainer_request_stop(signals.trainer);
    pthread_mutex_unlock(&signals.lock);
    return asked;
}

static void *wait_for_signals(void *context) {
    sigset_t set;
    int number = 0;
    (void)context;
    list_signals(&set);
    while (!sigwait(&set, &number)) {
        int state;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        if (!ask_trainer()) { /* ends the program with the signal's own status */
            pthread_sigmask(SIG_UNBLOCK, &set, NULL);
            raise(number);
        }
        pthread_setcancelstate(state, NULL);
    }
    return NULL;
}

/* From now on they end the program, as they would if nobody had held them back; those that came
 * meanwhile, too.  MP_ENOMEM. */
static int signals_watch(struct mp_error *error) {
    signals.watches = !pthread_create(&signals.thread, NULL, wait_for_signals, NULL);
    if (!signals.watches)
        return mp_fail(error, MP_ENOMEM, "no thread that waits for signals could be made");
    return MP_OK;
}

/* From now on they ask this trainer to stop; NULL: they end the program.  The trainer is borrowed
 * until the next call. */
static void signals_stop(struct mp_trainer *trainer) {
    pthread_mutex_lock(&signals.lock);
    signals.trainer = trainer;
    pthread_mutex_unlock(&signals.lock);
}

/* Waits for them no more; they are held back again.  Needs no signals_watch before. */
static void signals_end(void) {
    if (!signals.watches)
        return;
    pthread_cancel(signals.thread);
    pthread_join(signals.thread, NULL);
    signals.watches = false;
}

/* ---- the program ---- */

enum { RATED_ITERATIONS = 1000 };
enum { EXIT_BAD = 2, THREADS_MOST = 1024, CLOCK_TRIPS = 200 };
enum { HELP_COLUMN = 23, PAGE_COLUMNS = 80 };

struct arguments {
    const char *job;
    const char *spools;    /* folder, or NULL: nothing is recorded */
    const char *calibrate; /* cluster file to write instead of training, or NULL */
    bool progress, quick, rate;
    int threads; /* of a rank that calibrates; 0: not said */
    struct cli_words settings;
};

/* Everything of one process, so that leaving is one function. */
struct program {
    struct arguments arguments;
    struct mp_systems systems;
    struct mp_job_file file;
    struct mp_place place;
    struct mp_comm *comm; /* of the place */
    struct mp_text text;
    struct mp_trainer *trainer;
    struct mp_target target;
    struct mp_recorder *recorder;
    struct mp_record_thread *compute, *communication;
    struct mp_error error;
    double *seconds; /* [RATED_ITERATIONS] of the last iterations; NULL: --rate is not asked for */
    bool interrupted;
    bool reached;      /* the target */
    bool failed_alike; /* every rank knows of this failure: one says so, none need be stopped */
};

/* Prints words from column HELP_COLUMN on, filled to a page's width; the first line stands behind
 * what is already there. */
static void print_filled(const char *text) {
    int column = HELP_COLUMN;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + length > PAGE_COLUMNS) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        column += printf("%s%.*s", column > HELP_COLUMN ? " " : "", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_job_options(void) {
    char accepts[256], what[512];
    printf("\noptions of a job:\n");
    for (const struct mp_option *option = mp_job_options; option->name; option++) {
        const char *value = option->default_value;
        mp_options_describe(option, accepts, sizeof accepts);
        snprintf(what, sizeof what, "%s; %s%s", accepts, value ? "default " : "must be given",
                 !value   ? ""
                 : *value ? value
                          : "empty");
        printf("  %-*s", HELP_COLUMN - 2, option->name);
        print_filled(option->help);
        printf("%*s", HELP_COLUMN, "");
        print_filled(what);
    }
}

/* 0: go on; 1: help has been printed; negative: bad usage, in program->error. */
static int read_flags(struct program *program, int argc, char **argv, bool *version) {
    struct arguments *arguments = &program->arguments;
    struct cli_words words;
    const struct cli_flag flags[] = {
        {"--set", CLI_REPEATED, &arguments->settings, "KEY=VALUE",
         "changes an option of the job; options.KEY=VALUE one of\n"
         "its system, gate-options.KEY=VALUE of its gate; may be\n"
         "repeated"},
        {"--spool-directory", CLI_VALUE, &arguments->spools, "DIR",
         "records every iteration into DIR/rank-NNNN.spool, DIR\n"
         "is created"},
        {"--progress", CLI_SWITCH, &arguments->progress, NULL,
         "prints a line per iteration:\n"
         "progress ITERATION ITERATIONS LOSS MILLISECONDS"},
        {"--rate", CLI_SWITCH, &arguments->rate, NULL,
         "prints a line at the end, medians of the second half:\n"
         "rate MILLISECONDS TOKENS/S MODEL-TFLOP/S of all ranks"},
        {"--calibrate", CLI_VALUE, &arguments->calibrate, "FILE",
         "trains nothing, but measures what the ranks reach and\n"
         "writes it as a cluster (moeperf calibrate does this);\n"
         "a progress line per step has no loss: 0"},
        {"--quick", CLI_SWITCH, &arguments->quick, NULL,
         "calibrates in a few seconds, less exactly"},
        {"--threads", CLI_COUNT, CLI_NUMBER(&arguments->threads, 1, THREADS_MOST), "N",
         "of a rank that calibrates; default 1"},
        {"--version", CLI_SWITCH, version, NULL, "release and revision it was built from"},
        {0},
    };
    const struct cli_usage usage = {
        "moeperf-train [JOB.yaml] [options]\n"
        "       moeperf-train --calibrate FILE [options]",
        "Trains one job: a GPT-style mixture-of-experts model under one system; or, with\n"
        "mode prefill or decode, serves it: forward only, with a cache.  Run it\n"
        "alone for one rank, or under mpirun with as many processes as the job has ranks;\n"
        "with device cuda also by torchrun on one host, or with RANK, WORLD_SIZE and\n"
        "MOEPERF_RENDEZVOUS=file:/FOLDER set.  Without a file --set gives the whole job.\n\n"
        "SIGINT, SIGTERM and SIGHUP end the run after the current iteration, with\n"
        "everything recorded.",
        flags,
        0,
        2,
        "  moeperf-train job.yaml --progress\n"
        "  moeperf-train job.yaml --set system=fssdp --set options.memory=2\n"
        "  mpirun -n 2 moeperf-train job.yaml --spool-directory spools\n"
        "  mpirun -n 2 moeperf-train --calibrate machine.yaml\n"};
    int code = cli_parse_arguments(&usage, NULL, argc, argv, &words, &program->error);
    if (!code && words.count == 2)
        return mp_fail(&program->error, MP_EINVAL, "one job file only: %s or %s?", words.word[0],
                       words.word[1]);
    arguments->job = !code && words.count ? words.word[0] : NULL;
    return code;
}

/* 0: go on; 1: done (help, version); negative: bad usage, in program->error. */
static int parse_arguments(struct program *program, int argc, char **argv) {
    struct arguments *arguments = &program->arguments;
    bool version = false;
    int code = read_flags(program, argc, argv, &version);
    if (code == 1)
        print_job_options();
    if (!code && version)
        printf("moeperf-train %s\n", mp_version());
    if (code || version)
        return code ? code : 1;
    if (arguments->calibrate && arguments->job)
        return mp_fail(&program->error, MP_EINVAL,
                       "--calibrate measures and does not train %s; leave one out", arguments->job);
    if (!arguments->calibrate && (arguments->quick || arguments->threads))
        return mp_fail(&program->error, MP_EINVAL, "%s is for --calibrate",
                       arguments->quick ? "--quick" : "--threads");
    if (!arguments->job && !arguments->calibrate && !arguments->settings.count)
        return mp_fail(&program->error, MP_EINVAL, "no job file given; see --help");
    return MP_OK;
}

static int read_job_file(struct program *program) {
    MP_AUTO(yaml) struct mp_yaml *document = NULL;
    const char *path = program->arguments.job;
    MP_TRY(mp_yaml_load(path, &document, &program->error));
    return mp_job_apply(&program->file, NULL, document, path, &program->systems, &program->error);
}

static int load_job(struct program *program) {
    struct mp_error *error = &program->error;
    const struct cli_words *settings = &program->arguments.settings;
    MP_TRY(mp_systems_register_all(&program->systems, error));
    MP_TRY(mp_job_file_create(&program->file, error));
    if (program->arguments.job)
        MP_TRY(read_job_file(program));
    for (int i = 0; i < settings->count; i++)
        MP_TRY(mp_job_set(&program->file, NULL, settings->word[i], &program->systems, error));
    MP_TRY(mp_job_check(&program->file, error));
    program->file.job.expert_shards = mp_job_wanted_shards(&program->file);
    return MP_OK;
}

static int join(struct program *program) {
    struct mp_place *place = &program->place;
    const char *name = program->arguments.job ? program->arguments.job : "--set";
    int code = mp_place_create(&program->file.job, name, place, &program->error);
    program->comm = place->comm ? place->comm : place->bootstrap;
    program->failed_alike = place->failed_alike;
    if (!code && program->comm->rank == 0 && *mp_place_remark(place))
        fprintf(stderr, "moeperf-train: %s\n", mp_place_remark(place));
    return code;
}

static int load_text(struct program *program) {
    const struct mp_job *job = &program->file.job;
    size_t sequence = (size_t)mp_job_positions(job) + 1;
    return mp_text_load(job->text, job->validation_share, (size_t)job->batch * sequence,
                        job->validate_every ? sequence : 0, &program->text, &program->error);
}

static int start_recording(struct program *program) {
    struct mp_error *error = &program->error;
    struct mp_comm *comm = program->comm;
    if (!program->arguments.spools || !program->file.job.record)
        return MP_OK;
    char path[4096];
    snprintf(path, sizeof path, "%s/rank-%04d.spool", program->arguments.spools, comm->rank);
    int per_node = mp_job_topology(&program->file.job, comm->ranks).ranks_per_node;
    struct mp_recorder_config config = {
        .path = path, .rank = comm->rank, .ranks = comm->ranks, .node = comm->rank / per_node};
    mkdir(program->arguments.spools, 0777); /* what is wrong with it, the recorder says */
    MP_TRY(mp_recorder_create(&config, &program->recorder, error));
    MP_TRY(mp_recorder_thread(program->recorder, "compute", &program->compute, error));
    return mp_recorder_thread(program->recorder, "comm", &program->communication, error);
}

static int record_clock(struct program *program) {
    int64_t offset, uncertainty;
    MP_TRY(
        mp_comm_clock_offset(program->comm, CLOCK_TRIPS, &offset, &uncertainty, &program->error));
    if (program->compute)
        mp_record_clock(program->compute, mp_clock_ns(), offset, uncertainty);
    return MP_OK;
}

static void record_job_text(struct program *program) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return;
    int code = mp_job_write(&program->file, NULL, stream, NULL);
    fclose(stream);
    if (!code)
        mp_record_text(program->compute, "job", text);
    free(text);
}

static int record_run(struct program *program, int argc, char **argv) {
    const struct mp_job *job = &program->file.job;
    char transport[256], number[32];
    bool share = false;
    if (!program->compute)
        return MP_OK;
    mp_comm_describe(program->comm, transport, sizeof transport, &share);
    struct mp_record_thread *thread = program->compute;
    MP_TRY(mp_trainer_describe(program->trainer, thread, &program->error));
    environment_record(thread, argc, argv);
    mp_record_text(thread, "environment.mpi", transport);
    mp_record_number(thread, -1, -1, "ranks-share-cores", share);
    if (program->comm->rank != 0)
        return MP_OK;
    record_job_text(program);
    if (mp_job_serves(job))
        mp_record_text(thread, "mode", mp_job_mode(job));
    snprintf(number, sizeof number, "%zu", program->text.size);
    mp_record_text(thread, "text.digest", program->text.digest);
    mp_record_text(thread, "text.bytes", number);
    if (job->target_loss > 0) {
        mp_record_number(thread, -1, -1, "target-loss", job->target_loss);
        mp_record_number(thread, -1, -1, "target-window", job->target_window);
    }
    return MP_OK;
}

static int set_up(struct program *program, int argc, char **argv) {
    const struct mp_job *job = &program->file.job;
    MP_TRY(load_text(program));
    if (program->arguments.rate) {
        MP_TRY(MP_NEW(program->seconds, RATED_ITERATIONS, &program->error));
    }
    if (job->checkpoint[0])
        MP_TRY(mp_checkpoint_check(job->checkpoint, &program->error));
    MP_TRY(mp_trainer_create(&program->file, program->comm, program->place.device, &program->text,
                             &program->trainer, &program->error));
    MP_TRY(mp_target_create(job, &program->target, &program->error));
    if (job->restore[0])
        MP_TRY(mp_trainer_restore(program->trainer, job->restore, &program->error));
    MP_TRY(mp_trainer_fill(program->trainer, &program->error));
    MP_TRY(start_recording(program));
    MP_TRY(record_clock(program));
    MP_TRY(record_run(program, argc, argv));
    signals_stop(program->trainer);
    return MP_OK;
}

static int flush(struct program *program) {
    return program->recorder ? mp_recorder_flush(program->recorder, &program->error) : MP_OK;
}

static int validate(struct program *program, int64_t iteration) {
    double loss;
    MP_TRY(mp_trainer_validate(program->trainer, &loss, &program->error));
    if (program->compute && program->comm->rank == 0)
        mp_record_number(program->compute, iteration, -1, "validation-loss", loss);
    return MP_OK;
}

/* What follows a loss that is no number is no training: what it costs says nothing of any system's
 * speed.  All ranks have the same sum of losses, and see it. */
static int check_loss(struct program *program, const struct mp_trainer_result *result) {
    if (isfinite(result->loss))
        return MP_OK;
    program->failed_alike = true;
    return mp_fail(&program->error, MP_EINVAL,
                   "iteration %lld: the loss is %s: the training diverged; a smaller learning-rate "
                   "than %g may help",
                   (long long)result->iteration, isnan(result->loss) ? "not a number" : "infinite",
                   program->file.job.learning_rate);
}

/* Whether the target is reached now: rank 0 says so, and all ranks stop after the same iteration
 * however their sums were rounded. */
static int check_target(struct program *program, double loss) {
    struct mp_trainer *trainer = program->trainer;
    char reached = mp_target_reached(&program->target, loss);

    if (program->target.loss <= 0)
        return MP_OK;
    int code = mp_comm_broadcast(program->comm, &reached, sizeof reached, 0, &program->error);
    program->reached = !code && reached;
    if (program->reached && program->compute && program->comm->rank == 0)
        mp_record_number(program->compute, -1, -1, "iterations-to-target",
                         (double)mp_trainer_iteration(trainer));
    return code;
}

/* How long others had the core of this rank while it trained, and how long that took. */
static void record_ready(struct program *program, int64_t start_ns, int64_t ready_ns) {
    int64_t now = mp_clock_thread_ready_ns();
    if (!program->compute || ready_ns < 0 || now < 0)
        return;
    mp_record_number(program->compute, -1, -1, "training-seconds",
                     1e-9 * (double)(mp_clock_ns() - start_ns));
    mp_record_number(program->compute, -1, -1, "processor-wait-seconds",
                     1e-9 * (double)(now - ready_ns));
}

/* The first half warms up: connections, clocks, libraries that choose their kernels. */
static void print_rate(const struct program *program, int64_t trained) {
    const struct mp_job *job = &program->file.job;
    int64_t kept = trained < RATED_ITERATIONS ? trained : RATED_ITERATIONS;
    int64_t first = trained < RATED_ITERATIONS ? kept / 2 : 0, count = kept - first;
    if (count == 0)
        return;
    double median = mp_median_of(program->seconds + first, count);
    int64_t tokens = mp_job_tokens(job);
    const struct mp_model_shape *shape = &mp_trainer_model(program->trainer)->shape;
    printf("rate %.3f %.1f %.4f\n", 1e3 * median, (double)tokens / median,
           1e-12 * (double)mp_model_iteration_flops(shape, tokens) / median);
}

/* One iteration and what follows from it; `first` is the run's first one. */
static int train_once(struct program *program, int64_t first) {
    const struct mp_job *job = &program->file.job;
    struct mp_trainer *trainer = program->trainer;
    struct mp_trainer_result result;
    int64_t start = mp_clock_ns();
    MP_TRY(mp_trainer_step(trainer, &result, &program->error));
    double ms = 1e-6 * (double)(mp_clock_ns() - start);
    int64_t done = mp_trainer_iteration(trainer);
    MP_TRY(check_loss(program, &result));
    if (job->validate_every && done % job->validate_every == 0)
        MP_TRY(validate(program, result.iteration));
    MP_TRY(check_target(program, result.loss));
    MP_TRY(flush(program));
    if (job->checkpoint[0] && job->checkpoint_every && done % job->checkpoint_every == 0 &&
        done < job->iterations)
        MP_TRY(mp_trainer_save(trainer, job->checkpoint, &program->error));
    if (program->seconds)
        program->seconds[(done - 1 - first) % RATED_ITERATIONS] = 1e-3 * ms;
    if (program->arguments.progress && program->comm->rank == 0) {
        printf("progress %lld %lld %.6f %.3f\n", (long long)done, (long long)job->iterations,
               result.loss, ms);
        fflush(stdout);
    }
    program->interrupted = result.stop;
    return MP_OK;
}

static int train(struct program *program) {
    const struct mp_job *job = &program->file.job;
    struct mp_trainer *trainer = program->trainer;
    mp_trainer_record(trainer, program->compute, program->communication);
    int64_t start_ns = mp_clock_ns(), ready_ns = mp_clock_thread_ready_ns();
    int64_t first = mp_trainer_iteration(trainer);
    int code = flush(program);
    while (!code && !program->interrupted && !program->reached &&
           mp_trainer_iteration(trainer) < job->iterations)
        code = train_once(program, first);
    record_ready(program, start_ns, ready_ns);
    if (!code && program->seconds && program->comm->rank == 0)
        print_rate(program, mp_trainer_iteration(trainer) - first);
    if (!code && job->checkpoint[0])
        code = mp_trainer_save(trainer, job->checkpoint, &program->error);
    return code;
}

/* What is known only at the end, and the end record. */
static int finish(struct program *program, int code) {
    struct rusage usage;
    if (!code)
        code = record_clock(program);
    if (!program->recorder)
        return code;
    int64_t now, most = -1;
    if (program->place.device)
        program->place.device->operations->memory_used(program->place.device, &now, &most);
    if (most >= 0)
        mp_record_number(program->compute, -1, -1, "device-memory-high-water-bytes", (double)most);
    mp_record_number(program->compute, -1, -1, "row-memory-bytes",
                     (double)mp_trainer_model(program->trainer)->row_bytes);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        mp_record_number(program->compute, -1, -1, "memory-high-water-bytes",
                         1024.0 * (double)usage.ru_maxrss);
    int64_t bytes, spans;
    mp_recorder_totals(program->recorder, &bytes, &spans);
    mp_record_number(program->compute, -1, -1, "record-bytes", (double)bytes);
    mp_record_number(program->compute, -1, -1, "record-spans", (double)spans);
    char reason[160];
    snprintf(reason, sizeof reason, "stopped by a signal after iteration %lld",
             (long long)mp_trainer_iteration(program->trainer));
    int status = code ? code : program->interrupted ? MP_EINTERRUPTED : MP_OK;
    int finished = mp_recorder_finish(&program->recorder, status,
                                      code                   ? program->error.text
                                      : program->interrupted ? reason
                                                             : "",
                                      &program->error);
    return code ? code : finished;
}

static void destroy(struct program *program) {
    signals_end();
    free(program->seconds);
    mp_trainer_destroy(program->trainer);
    mp_target_destroy(&program->target);
    mp_text_destroy(&program->text);
    mp_job_file_destroy(&program->file);
    mp_place_destroy(&program->place);
}

static void report_failure(struct program *program) {
    int rank = program->comm ? program->comm->rank : 0;
    int ranks = program->comm ? program->comm->ranks : 1;
    bool alone = ranks == 1 || program->failed_alike;
    bool names_rank = alone || strncmp(program->error.text, "rank ", 5) == 0;
    if (names_rank && (!program->failed_alike || rank == 0))
        fprintf(stderr, "moeperf-train: %s\n", program->error.text);
    else if (!names_rank)
        fprintf(stderr, "moeperf-train: rank %d: %s\n", rank, program->error.text);
    fflush(stderr);
    if (program->failed_alike && ranks > 1)
        mp_comm_barrier(program->comm, NULL); /* nobody leaves before rank 0 has spoken */
    else if (ranks > 1)
        mp_comm_abort(program->comm, EXIT_BAD); /* other ranks may be waiting for this one */
}

static void print_step(void *context, int done, int steps, double seconds) {
    const struct program *program = context;
    if (program->arguments.progress && program->comm->rank == 0) {
        printf("progress %d %d 0 %.3f\n", done, steps, 1e3 * seconds);
        fflush(stdout);
    }
}

/* Instead of training. */
static int calibrate(struct program *program) {
    const struct arguments *arguments = &program->arguments;
    struct mp_error *error = &program->error;
    struct mp_machine machine;
    char processor[256];
    const struct mp_machine_settings settings = {.threads =
                                                     arguments->threads ? arguments->threads : 1,
                                                 .quick = arguments->quick,
                                                 .progress = print_step,
                                                 .context = program};
    MP_TRY(signals_watch(error));
    MP_TRY(mp_place_connect(&program->place, error));
    program->comm = program->place.comm;
    MP_TRY(mp_machine_measure(program->comm, &settings, &machine, error));
    mp_machine_processor(processor, sizeof processor);
    if (program->comm->rank == 0)
        MP_TRY(mp_machine_write(&machine, processor, arguments->calibrate, error));
    return mp_comm_barrier(program->comm, error);
}

static int set_up_and_train(struct program *program, int argc, char **argv) {
    MP_TRY(signals_watch(&program->error));
    MP_TRY(join(program));
    MP_TRY(set_up(program, argc, argv));
    return train(program);
}

int main(int argc, char **argv) {
    struct program program = {0};
    signal(SIGXFSZ, SIG_IGN); /* a file at its size limit is an error like a full disk */
    /* A rank that fails before MPI starts makes mpirun end the others: not before the speaker
     * spoke.
     */
    signals_hold();
    int code = parse_arguments(&program, argc, argv);
    if (code == 1)
        return 0;
    if (!code && !program.arguments.calibrate)
        code = load_job(&program);
    if (code) {
        if (mp_place_launched_rank() == 0) /* ranks don't know each other yet: one speaks */
            fprintf(stderr, "moeperf-train: %s\n", program.error.text);
        mp_job_file_destroy(&program.file);
        return EXIT_BAD;
    }
    code =
        program.arguments.calibrate ? calibrate(&program) : set_up_and_train(&program, argc, argv);
    if (program.trainer)
        code = finish(&program, code);
    if (code) {
        report_failure(&program);
    } else if (program.interrupted && program.comm->rank == 0) {
        fprintf(stderr,
                "moeperf-train: stopped by a signal after iteration %lld of %lld; all of "
                "it is recorded\n",
                (long long)mp_trainer_iteration(program.trainer),
                (long long)program.file.job.iterations);
    }
    destroy(&program);
    return code ? EXIT_BAD : 0;
}
