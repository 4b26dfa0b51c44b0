/* moeperf doctor: what works here, what is missing, how to get it. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "harness/cli/cli.h"
#include "harness/cli/doctor_gpu.h"
#include "harness/cli/machine.h"
#include "harness/suite/launch.h"
#include "harness/suite/paths.h"
#include "harness/workload/generate.h"
#include "profiler/nvtx/emit.h"
#include "reference/base/program.h"
#include "results/report/browser.h"
#include "results/report/vega.h"

enum state { STATE_GOOD, STATE_NOTE, STATE_MISSING }; /* NOTE: worth knowing, nothing stops */

struct finding {
    const char *name;
    enum state state;
    char detail[512];
    const char *remedy; /* what to do, when it is missing; NULL: nothing */
};

static void find(struct finding *finding, enum state state, const char *remedy, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
static void find(struct finding *finding, enum state state, const char *remedy, const char *format,
                 ...) {
    va_list arguments;
    finding->state = state;
    finding->remedy = remedy;
    va_start(arguments, format);
    vsnprintf(finding->detail, sizeof finding->detail, format, arguments);
    va_end(arguments);
}

/* First line that a program prints; false if it can't be run or fails. */
static bool capture(const char *program, const char *argument, char *line, size_t size) {
    int output[2], status;
    if (pipe2(output, O_CLOEXEC))
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(output[1], 1);
        execlp(program, program, argument, (char *)NULL);
        _exit(127);
    }
    close(output[1]);
    FILE *stream = fdopen(output[0], "r");
    line[0] = '\0';
    if (stream) {
        if (fgets(line, (int)size, stream))
            line[strcspn(line, "\n")] = '\0';
        while (fgetc(stream) != EOF) /* the rest, so that it can end */
            ;
        fclose(stream);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0 && *line;
}

static void check_processor(struct finding *finding) {
    struct cli_machine machine;
    cli_machine_read(&machine);
    find(finding, STATE_GOOD, NULL, "%s, %d cores for this process, %.1f GiB", machine.processor,
         machine.cores, (double)machine.memory / (1 << 30));
}

static void check_compute(struct finding *finding) {
    char text[256];
    struct mp_error error = {0};
    if (cli_machine_compute(text, sizeof text, &error))
        find(finding, STATE_MISSING, "install libdnnl-dev and build again", "%s", error.text);
    else
        find(finding, STATE_GOOD, NULL, "cpu: %s", text);
}

static const char build_all[] = "cmake --build build/release --target programs";

static void check_trainer(struct finding *finding) {
    char path[MP_PATH_SIZE], line[256];
    struct mp_error error = {0};
    if (mp_path_program("moeperf-train", path, &error))
        find(finding, STATE_MISSING, build_all, "%s", error.text);
    else if (!capture(path, "--help", line, sizeof line))
        find(finding, STATE_MISSING, "install its libraries: ci/setup", "%.400s does not run",
             path);
    else
        find(finding, STATE_GOOD, NULL, "%.500s", path);
}

static const char install_mpi[] = "install openmpi-bin (apt-get install openmpi-bin)";

static void check_mpirun(struct finding *finding) {
    char path[MP_PATH_SIZE], line[256];
    if (!mp_path_search("mpirun", path))
        find(finding, STATE_MISSING, install_mpi, "mpirun is not installed; one rank works");
    else if (!capture("mpirun", "--version", line, sizeof line))
        find(finding, STATE_MISSING, install_mpi, "%.400s does not run", path);
    else
        find(finding, STATE_GOOD, NULL, "%s at %.240s", line, path);
}

/* Two real processes through the same command that a job gets. */
static void check_ranks(struct finding *finding) {
    static const char *const no_arguments[] = {NULL};
    struct mp_command command = {0};
    struct mp_launch_result result = {0};
    struct mp_error error = {0};
    const struct mp_launch launch = {.command = &command, .threads = 1, .timeout = 20, .grace = 2};
    int code = mp_command_create(NULL, 2, "true", no_arguments, &command, &error);
    if (!code)
        code = mp_launch_run(&launch, &result, &error);
    if (code)
        find(finding, STATE_MISSING, install_mpi, "%.500s", error.text);
    else if (result.end != MP_LAUNCH_COMPLETE)
        find(finding, STATE_MISSING, "see what mpirun says to: mpirun -n 2 true",
             "two ranks do not start: %.400s", result.reason);
    else
        find(finding, STATE_GOOD, NULL, "two ranks start and end in %.1f s", result.seconds);
    mp_command_destroy(&command);
}

static void check_database(struct finding *finding) {
    find(finding, STATE_GOOD, NULL, "SQLite %s", sqlite3_libversion());
}

static void check_html(struct finding *finding) {
    char folder[MP_VEGA_FOLDER];
    struct mp_error error = {0};
    if (mp_vega_find(folder, &error))
        find(finding, STATE_NOTE, "install libjs-vega (apt-get install libjs-vega)",
             "moeperf report --html is off: %.400s", error.text);
    else
        find(finding, STATE_GOOD, NULL, "moeperf report --html draws with Vega in %.400s", folder);
}

static void check_figures(struct finding *finding) {
    char path[MP_BROWSER_PATH];
    struct mp_error error = {0};
    if (mp_browser_find(path, &error))
        find(finding, STATE_NOTE, "install chromium (apt-get install chromium)",
             "--figures is off: %.400s", error.text);
    else
        find(finding, STATE_GOOD, NULL, "--figures draws SVG and PDF with Vega in %.400s", path);
}

static void check_gpu_work(struct finding *finding) {
    char detail[sizeof finding->detail];
    bool works = cli_doctor_cupti(detail, sizeof detail);
    find(finding, works ? STATE_GOOD : STATE_NOTE, NULL, "%s", detail);
}

static void check_cuda(struct finding *finding) {
    char detail[sizeof finding->detail];
    bool works = cli_doctor_cuda(detail, sizeof detail);
    find(finding, works ? STATE_GOOD : STATE_NOTE, NULL, "%s", detail);
}

static void check_nccl_transport(struct finding *finding) {
    char detail[sizeof finding->detail];
    bool works = cli_doctor_nccl_transport(detail, sizeof detail);
    find(finding, works ? STATE_GOOD : STATE_NOTE, NULL, "%s", detail);
}

static void check_nccl(struct finding *finding) {
    char detail[sizeof finding->detail];
    bool works = cli_doctor_nccl(detail, sizeof detail);
    find(finding, works ? STATE_GOOD : STATE_NOTE, works ? NULL : build_all, "%s", detail);
}

/* Both come from the same headers: what the trainer says of itself, and who listens. */
static void check_ranges(struct finding *finding) {
    char path[MP_PATH_SIZE];
    struct mp_error error = {0};
    if (!mp_nvtx_headers())
        find(finding, STATE_NOTE, "install the CUDA toolkit's NVTX headers and build again",
             "built without nvtx3/nvToolsExtPayload.h: no moeperf record, and the trainer emits no "
             "ranges");
    else if (mp_path_library("libmoeperf-nvtx.so", path, &error))
        find(finding, STATE_NOTE, build_all, "%.500s", error.text);
    else
        find(finding, STATE_GOOD, NULL, "NVTX %d, collector %.400s", mp_nvtx_headers(), path);
}

static void check_traces(struct finding *finding) {
    int kinds = 0;
    while (mp_generators[kinds].name)
        kinds++;
    find(finding, STATE_GOOD, NULL, "%d generators, packed with zstd %s", kinds,
         ZSTD_versionString());
}

static void check_programs(struct finding *finding) {
    char text[64];
    struct mp_error error = {0};
    if (mp_program_solver(text, sizeof text, &error))
        find(finding, STATE_NOTE, "install coinor-libcbc-dev (apt-get install coinor-libcbc-dev)",
             "%.500s", error.text);
    else
        find(finding, STATE_GOOD, NULL, "integer programs are solved by %s", text);
}

static void check_suites(struct finding *finding) {
    char **names;
    struct mp_error error = {0};
    int count = 0;
    if (mp_path_names(MP_SUITES, &names, &error)) {
        find(finding, STATE_MISSING, "cmake --install build/release --prefix FOLDER", "%.500s",
             error.text);
        return;
    }
    while (names[count])
        count++;
    mp_path_names_destroy(names);
    find(finding, STATE_GOOD, NULL, "%d ready-made suites", count);
}

static void check_text(struct finding *finding) {
    char path[MP_PATH_SIZE];
    struct mp_error error = {0};
    if (mp_path_default_text(path, &error))
        find(finding, STATE_NOTE, "moeperf-text prepares it here; or give --text PATH", "%.500s",
             error.text);
    else
        find(finding, STATE_GOOD, NULL, "%.500s", path);
}

static void check_disk(struct finding *finding) {
    struct statvfs space;
    if (access(".", W_OK))
        find(finding, STATE_MISSING, "change to a folder that you may write to",
             "can't write to this folder: %s", strerror(errno));
    else if (statvfs(".", &space))
        find(finding, STATE_NOTE, NULL, "free space is not known: %s", strerror(errno));
    else if ((double)space.f_bavail * (double)space.f_frsize < (double)(1 << 30))
        find(finding, STATE_NOTE, "free some space before long suites",
             "less than 1 GiB is free here");
    else
        find(finding, STATE_GOOD, NULL, "%.1f GiB are free here",
             (double)space.f_bavail * (double)space.f_frsize / (1 << 30));
}

static const struct {
    const char *name;
    void (*check)(struct finding *finding);
} checks[] = {
    {"machine", check_processor}, {"compute", check_compute},   {"trainer", check_trainer},
    {"mpirun", check_mpirun},     {"ranks", check_ranks},       {"database", check_database},
    {"html report", check_html},  {"figures", check_figures},   {"ranges", check_ranges},
    {"traces", check_traces},     {"programs", check_programs}, {"suites", check_suites},
    {"default text", check_text}, {"gpu", check_cuda},          {"gpu ranks", check_nccl_transport},
    {"gpu work", check_gpu_work}, {"nccl", check_nccl},         {"disk", check_disk}};
enum { CHECKS = sizeof checks / sizeof *checks };

static const char *const state_names[] = {"good", "note", "missing"};

static void print_text(const struct finding finding[], int missing, int notes) {
    for (int i = 0; i < CHECKS; i++) {
        printf("%-8s %-13s %s\n", state_names[finding[i].state], finding[i].name,
               finding[i].detail);
        if (finding[i].remedy)
            printf("%-8s %-13s -> %s\n", "", "", finding[i].remedy);
    }
    putchar('\n');
    if (missing > 0)
        printf("Not everything works: %d of %d checks found something missing; the arrows say what "
               "to do.\n",
               missing, CHECKS);
    else if (notes > 0)
        printf("Everything that moeperf needs works; the notes say what would not.\n");
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
    struct finding finding[CHECKS];
    int missing = 0, notes = 0, code = MP_OK;
    for (int i = 0; i < CHECKS; i++) {
        finding[i].name = checks[i].name;
        checks[i].check(&finding[i]);
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
