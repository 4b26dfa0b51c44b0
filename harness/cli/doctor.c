/* moeperf doctor: what works here, what is missing, how to get it. */
#include <dlfcn.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zstd.h>

#include "harness/cli/cli.h"
#include "harness/suite/launch.h"
#include "harness/suite/paths.h"
#include "harness/workload/generate.h"
#include "profiler/nvtx/emit.h"
#include "reference/base/characters.h"
#include "reference/base/program.h"
#include "reference/base/shell.h"
#include "reference/comm/nccl/library.h"
#include "reference/device/device.h"
#include "results/report/browser.h"
#include "results/report/table.h"
#include "results/report/vega.h"

enum state { STATE_GOOD, STATE_NOTE, STATE_MISSING }; /* NOTE: worth knowing, nothing stops */

struct finding {
    const char *name, *remedy; /* what to do, where it does not work; NULL: nothing */
    enum state state;
    char text[MP_PATH_SIZE]; /* what a check finds */
    char detail[512];        /* in words */
};

/* Each check writes what it finds into `text`, or returns a code with the error's sentence on what
 * is missing; the table below has the words in front of both. */

/* First line that a program prints; false if it can't be run or fails. */
static bool capture(const char *program, const char *argument, char *line, size_t size) {
    char command[2 * MP_PATH_SIZE];
    mp_shell_word(command, sizeof command, program);
    FILE *stream = popen(mp_text_add(command, sizeof command, " ", "%s", argument), "re");
    line[0] = '\0';
    if (stream && fgets(line, (int)size, stream))
        line[strcspn(line, "\n")] = '\0';
    while (stream && fgetc(stream) != EOF) /* the rest, so that it can end */
        ;
    return stream && !pclose(stream) && *line;
}

static int check_processor(struct finding *finding, struct mp_error *error) {
    struct cli_machine machine;
    (void)error;
    cli_machine_read(&machine);
    snprintf(finding->text, sizeof finding->text, "%s, %d core%s for this process, %.1f GiB",
             machine.processor, machine.cores, machine.cores == 1 ? "" : "s",
             (double)machine.memory / (1 << 30));
    return MP_OK;
}

static int check_compute(struct finding *finding, struct mp_error *error) {
    return cli_machine_compute(finding->text, sizeof finding->text, error);
}

static int check_trainer(struct finding *finding, struct mp_error *error) {
    char line[256];
    MP_TRY(mp_path_program("moeperf-train", finding->text, error));
    if (capture(finding->text, "--help", line, sizeof line))
        return MP_OK;
    finding->remedy = "install its libraries: ci/setup";
    return mp_fail(error, MP_EIO, "%.400s does not run", finding->text);
}

static int check_mpirun(struct finding *finding, struct mp_error *error) {
    char path[MP_PATH_SIZE], line[256];
    if (!mp_shell_search("mpirun", path, sizeof path))
        return mp_fail(error, MP_ENOTFOUND, "mpirun is not installed; one rank works");
    if (!capture("mpirun", "--version", line, sizeof line))
        return mp_fail(error, MP_EIO, "%.400s does not run", path);
    snprintf(finding->text, sizeof finding->text, "%s at %.240s", line, path);
    return MP_OK;
}

/* Two real processes through the same command that a job gets. */
static int check_ranks(struct finding *finding, struct mp_error *error) {
    static const char *const no_arguments[] = {NULL};
    MP_AUTO(command) struct mp_command command = {0};
    struct mp_launch_result result = {0};
    const struct mp_launch launch = {.command = &command, .threads = 1, .timeout = 20, .grace = 2};
    MP_TRY(mp_command_create(NULL, 2, "true", no_arguments, &command, error));
    MP_TRY(mp_launch_run(&launch, &result, error));
    if (result.end != MP_LAUNCH_COMPLETE) {
        finding->remedy = "see what mpirun says to: mpirun -n 2 true";
        return mp_fail(error, MP_EIO, "two ranks do not start: %.400s", result.reason);
    }
    snprintf(finding->text, sizeof finding->text, "two ranks start and end in %.1f s",
             result.seconds);
    return MP_OK;
}

static int check_database(struct finding *finding, struct mp_error *error) {
    (void)error;
    snprintf(finding->text, sizeof finding->text, "%s", sqlite3_libversion());
    return MP_OK;
}

/* Both come from the same headers: what the trainer says of itself, and who listens. */
static int check_ranges(struct finding *finding, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    if (!mp_nvtx_headers()) {
        finding->remedy = "install the CUDA toolkit's NVTX headers and build again";
        return mp_fail(
            error, MP_ENOTFOUND,
            "built without nvtx3/nvToolsExtPayload.h: no moeperf record, and the trainer "
            "emits no ranges");
    }
    MP_TRY(mp_path_library("libmoeperf-nvtx.so", path, error));
    snprintf(finding->text, sizeof finding->text, "NVTX %d, collector %.400s", mp_nvtx_headers(),
             path);
    return MP_OK;
}

static int check_traces(struct finding *finding, struct mp_error *error) {
    int kinds = 0;
    (void)error;
    while (mp_generators[kinds].name)
        kinds++;
    snprintf(finding->text, sizeof finding->text, "%d generators, packed with zstd %s", kinds,
             ZSTD_versionString());
    return MP_OK;
}

static int check_programs(struct finding *finding, struct mp_error *error) {
    return mp_program_solver(finding->text, sizeof finding->text, error);
}

static int check_suites(struct finding *finding, struct mp_error *error) {
    char **names;
    int count = 0;
    MP_TRY(mp_path_names(MP_SUITES, &names, error));
    while (names[count])
        count++;
    mp_path_names_destroy(names);
    snprintf(finding->text, sizeof finding->text, "%d ready-made suites", count);
    return MP_OK;
}

/* Whether jobs with device cuda would run: "2 x NVIDIA H200, 139.8 GiB each". */
static int check_cuda(struct finding *finding, struct mp_error *error) {
    enum { MOST = 16 };
    struct mp_cuda_gpu gpus[MOST];
    int count = 0, alike = 1, code = mp_device_cuda_list(gpus, MOST, &count, error);
    if (code || count == 0)
        return code ? code : mp_fail(error, MP_ENOTFOUND, "there is none here");
    int known = count < MOST ? count : MOST;
    while (alike < known && !strcmp(gpus[alike].name, gpus[0].name))
        alike++;
    snprintf(finding->text, sizeof finding->text, "%d x %s, %.1f GiB each%s", alike, gpus[0].name,
             (double)gpus[0].memory / (1 << 30),
             alike < known ? "; others are of another type, and the slowest sets the pace" : "");
    return MP_OK;
}

/* Whether ranks could talk over NCCL. */
static int check_nccl_transport(struct finding *finding, struct mp_error *error) {
    struct mp_nccl_library library;
    MP_TRY(mp_nccl_load(&library, error));
    snprintf(finding->text, sizeof finding->text, "NCCL %d.%d.%d between GPUs",
             library.version / 10000, library.version / 100 % 100, library.version % 100);
    return MP_OK;
}

/* Whether the collector would record here, or what stands in the way: the toolkit was absent when
 * moeperf was built, its library is now, there is no driver, no GPU. */
static int check_gpu_work(struct finding *finding, struct mp_error *error) {
    if (*MOEPERF_CUPTI_OFF)
        return mp_fail(error, MP_ENOTFOUND, "%s", MOEPERF_CUPTI_OFF);
    MP_TRY(mp_path_library("libmoeperf-cupti.so", finding->text, error));
    /* Stays, as do the libraries it loads: some keep memory until the program ends. */
    void *library = dlopen(finding->text, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return mp_fail(error, MP_EIO, "%s", dlerror());
    dlclose(library);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*initialise)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!initialise)
        return mp_fail(error, MP_ENOTFOUND, "no CUDA driver here (libcuda.so.1)");
    int status = initialise(0);
    return status ? mp_fail(error, MP_EIO, "the CUDA driver says %d (no GPU?)", status) : MP_OK;
}

/* Whether the plug-in is there.  NCCL itself comes with the programs that use it. */
static int check_nccl(struct finding *finding, struct mp_error *error) {
    return mp_path_library("libmoeperf-nccl.so", finding->text, error);
}

static int check_disk(struct finding *finding, struct mp_error *error) {
    struct statvfs space;
    if (access(".", W_OK)) {
        finding->state = STATE_MISSING;
        finding->remedy = "change to a folder that you may write to";
        return mp_fail(error, MP_EIO, "can't write to this folder: %s", strerror(errno));
    }
    if (statvfs(".", &space)) {
        finding->remedy = NULL;
        return mp_fail(error, MP_EIO, "free space is not known: %s", strerror(errno));
    }
    const double free = (double)space.f_bavail * (double)space.f_frsize / (1 << 30);
    snprintf(finding->text, sizeof finding->text, "%.1f GiB are free here", free);
    return free < 1 ? mp_fail(error, MP_ENOSPACE, "less than 1 GiB is free here") : MP_OK;
}

static const char build_all[] = "cmake --build build/release --target programs";
static const char install_mpi[] = "install openmpi-bin (apt-get install openmpi-bin)";

static const struct check {
    const char *name;
    int (*find)(struct finding *finding, struct mp_error *error);
    int (*locate)(char path[MP_PATH_SIZE], struct mp_error *error); /* where there is no `find` */
    const char *good, *bad; /* words in front of what is found, and of what is missing */
    enum state state;       /* and remedy: where it does not work, unless the check says more */
    const char *remedy;
} checks[] = {
    {"machine", check_processor, NULL, "", "", STATE_GOOD, NULL},
    {"compute", check_compute, NULL, "cpu: ", "", STATE_MISSING,
     "install libdnnl-dev and build again"},
    {"trainer", check_trainer, NULL, "", "", STATE_MISSING, build_all},
    {"mpirun", check_mpirun, NULL, "", "", STATE_MISSING, install_mpi},
    {"ranks", check_ranks, NULL, "", "", STATE_MISSING, install_mpi},
    {"database", check_database, NULL, "SQLite ", "", STATE_GOOD, NULL},
    {"html report", NULL, mp_vega_find, "moeperf report --html draws with Vega in ",
     "moeperf report --html is off: ", STATE_NOTE,
     "install libjs-vega (apt-get install libjs-vega)"},
    {"figures", NULL, mp_browser_find, "--figures draws SVG and PDF with Vega in ",
     "--figures is off: ", STATE_NOTE, "install chromium (apt-get install chromium)"},
    {"ranges", check_ranges, NULL, "", "", STATE_NOTE, build_all},
    {"traces", check_traces, NULL, "", "", STATE_GOOD, NULL},
    {"programs", check_programs, NULL, "integer programs are solved by ", "", STATE_NOTE,
     "install coinor-libcbc-dev (apt-get install coinor-libcbc-dev)"},
    {"suites", check_suites, NULL, "", "", STATE_MISSING,
     "cmake --install build/release --prefix FOLDER"},
    {"default text", NULL, mp_path_default_text, "", "", STATE_NOTE,
     "moeperf-text prepares it here; or give --text PATH"},
    {"gpu", check_cuda, NULL, "device cuda: ", "no training on GPUs: ", STATE_NOTE, NULL},
    {"gpu ranks", check_nccl_transport, NULL, "", "no transport nccl: ", STATE_NOTE, NULL},
    {"gpu work", check_gpu_work, NULL,
     "CUPTI records GPU work: ", "no records of GPU work: ", STATE_NOTE, NULL},
    {"nccl", check_nccl, NULL, "plug-in for NCCL 2.28 and newer: ",
     "no records of NCCL's collectives: ", STATE_NOTE, build_all},
    {"disk", check_disk, NULL, "", "", STATE_NOTE, "free some space before long suites"}};
enum { CHECKS = MP_LENGTH(checks) };

static void carry_out(const struct check *check, struct finding *finding) {
    struct mp_error error = {0};
    *finding =
        (struct finding){.name = check->name, .remedy = check->remedy, .state = check->state};
    const bool works =
        check->find ? !check->find(finding, &error) : !check->locate(finding->text, &error);
    if (works) {
        finding->state = STATE_GOOD;
        finding->remedy = NULL;
    }
    snprintf(finding->detail, sizeof finding->detail, "%s%.440s", works ? check->good : check->bad,
             works ? finding->text : error.text);
}

static const char *const state_names[] = {"good", "note", "missing"};

static void print_text(const struct finding finding[], int missing, int notes) {
    enum { INDENT = 23 };
    for (int i = 0; i < CHECKS; i++) {
        printf("%-8s %-13s ", state_names[finding[i].state], finding[i].name);
        table_filled(stdout, INDENT, INDENT, finding[i].detail);
        if (finding[i].remedy) {
            printf("%*s-> ", INDENT, "");
            table_filled(stdout, INDENT + 3, INDENT + 3, finding[i].remedy);
        }
    }
    putchar('\n');
    if (missing > 0)
        table_paragraph(stdout,
                        "Not everything works: %d of %d checks found something missing; the arrows "
                        "say what to do.",
                        missing, CHECKS);
    else if (notes > 0)
        table_paragraph(stdout,
                        "Everything that moeperf needs works; the notes say what would not.");
    else
        printf("Everything works.\n");
}

static int print_json(const struct finding finding[], int missing, struct mp_error *error) {
    json_t *rows = json_array();
    for (int i = 0; i < CHECKS; i++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s?}", "name", finding[i].name,
                                              "state", state_names[finding[i].state], "detail",
                                              finding[i].detail, "remedy", finding[i].remedy));
    return cli_print_json(json_pack("{s:b, s:o}", "works", missing == 0, "checks", rows), error);
}

static bool json;

static const struct cli_flag known_flags[] = {
    {"--json", CLI_SWITCH, &json, NULL, "prints a JSON object"}, {0}};
static const struct cli_usage usage = {
    "moeperf doctor [--json]",
    "Says what is installed and works, what is missing and which package has it.\n"
    "The exit status is 1 if something that moeperf needs is missing.",
    known_flags,
    0,
    0,
    "  moeperf doctor\n"
    "  moeperf doctor --json\n"};

static int doctor(const struct cli_call *call, struct mp_error *error) {
    (void)call;
    static struct finding finding[CHECKS];
    int missing = 0, notes = 0, code = MP_OK;
    for (int i = 0; i < CHECKS; i++) {
        carry_out(&checks[i], &finding[i]);
        missing += finding[i].state == STATE_MISSING;
        notes += finding[i].state == STATE_NOTE;
    }
    if (json)
        code = print_json(finding, missing, error);
    else
        print_text(finding, missing, notes);
    return code || missing == 0 ? code : CLI_FINDING;
}

const struct cli_command cli_doctor = {"doctor", "says what works here and what is missing", doctor,
                                       .usage = &usage};
