/* moeperf: finds the subcommand, prints its error, chooses the exit status. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "baselines/systems.h"
#include "harness/cli/cli.h"
#include "harness/suite/paths.h"
#include "reference/base/characters.h"
#include "reference/trainer/version.h"

static const struct cli_command *const commands[] = {
    &cli_run,     &cli_record,    &cli_list,   &cli_show,      &cli_report,  &cli_compare,
    &cli_history, &cli_import,    &cli_export, &cli_generate,  &cli_reshape, &cli_predict,
    &cli_place,   &cli_reproduce, &cli_cite,   &cli_calibrate, &cli_doctor};
enum { COMMANDS = MP_LENGTH(commands) };

static void print_usage(FILE *stream) {
    fputs("usage: moeperf COMMAND [arguments]\n\n"
          "Measures and explains where time goes when Mixture-of-Experts models are trained\n"
          "on many devices.\n\ncommands:\n",
          stream);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\nmoeperf COMMAND --help tells more and ends with examples; moeperf help names the\n"
          "manual's pages; moeperf --version says which release this is and the revision it\n"
          "was built from, which each run keeps.\n",
          stream);
}

/* Whether moeperf run would take it, going by its name. */
static bool is_suite(const char *name) {
    char path[MP_PATH_SIZE];
    const char *ending = strrchr(name, '.');
    return (ending && !strcmp(ending, ".yaml")) ||
           (!strchr(name, '/') && mp_path_file(MP_SUITES, name, path, NULL) == MP_OK);
}

static int fail_unknown(const char *name) {
    const char *known[COMMANDS + 1] = {NULL};
    for (int i = 0; i < COMMANDS; i++)
        known[i] = commands[i]->name;
    const struct mp_meant meant = mp_meant(name, known);
    if (is_suite(name))
        fprintf(stderr,
                "moeperf: unknown command \"%.500s\"; to run the suite of that name: moeperf run "
                "%.500s\n",
                name, name);
    else if (*meant.text)
        fprintf(stderr, "moeperf: unknown command \"%.80s\"%s\n", name, meant.text);
    else if (strchr(name, '/') || !access(name, F_OK))
        fprintf(stderr,
                "moeperf: unknown command \"%.500s\"; a file goes behind a command, as in moeperf "
                "run SUITE.yaml or moeperf report --db FILE (moeperf --help lists them)\n",
                name);
    else
        fprintf(stderr, "moeperf: unknown command \"%.80s\"; moeperf --help lists them\n", name);
    return CLI_BAD_INPUT;
}

/* The exit status, and a failure's sentence. */
static int say_error(const char *command, int status, struct mp_error *error) {
    if (status >= 0)
        return status;
    fflush(stdout);
    fprintf(stderr, "moeperf %s: %s\n", command,
            mp_clean_text(error->text, sizeof error->text, error->text));
    return CLI_BAD_INPUT;
}

/* argv[0] is the command's own name. */
static int run_command(const struct cli_command *command, int argc, char *argv[]) {
    static struct mp_systems systems;
    static struct cli_words words;
    struct mp_error error = {0};
    int own = 0;
    while (own < argc && !(command->takes_rest && !strcmp(argv[own], "--")))
        own++;
    cli_leave_nothing_at_signals();
    const struct cli_usage *usage =
        command->usage ? command->usage : command->find_usage(own, argv, &error);
    const struct cli_call call = {&systems, usage, &words, own + 1 < argc ? argv + own + 1 : NULL};
    int status = usage ? cli_parse(usage, own, argv, &words, &error) : error.code;
    if (status > 0)
        return CLI_SUCCESS;
    if (status == MP_OK)
        status = mp_systems_register_all(&systems, &error);
    if (status == MP_OK)
        status = command->run(&call, &error);
    errno = 0;
    if (status >= 0 && (fflush(stdout) || ferror(stdout))) {
        clearerr(stdout);
        if (!errno && putchar('\n') >= 0) /* why an earlier write failed, one more tells */
            fflush(stdout);
        status = mp_fail(&error, MP_EIO, "can't write to standard output: %s",
                         errno ? strerror(errno) : "part of it was lost");
    }
    return say_error(command->name, status, &error);
}

static int answer(int argc, char *argv[]) {
    if (argc < 2) {
        print_usage(stdout);
        return CLI_BAD_INPUT;
    }
    struct mp_error error = {0};
    const char *name = argv[1];
    bool wants_help = !strcmp(name, "help");
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || (wants_help && argc == 2)) {
        print_usage(stdout);
        return wants_help ? say_error("help", cli_manual_list(&error), &error) : CLI_SUCCESS;
    }
    if (!strcmp(name, "--version")) {
        printf("moeperf %s\n", mp_version());
        return CLI_SUCCESS;
    }
    if (wants_help && argc > 3) {
        fprintf(stderr,
                "moeperf help: \"%.200s\" is one argument too many; usage: moeperf help "
                "PAGE\n",
                argv[3]);
        return CLI_BAD_INPUT;
    }
    if (wants_help)
        name = argv[2];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) != 0)
            continue;
        char flag[] = "--help", *help[] = {argv[1], flag, NULL};
        return wants_help ? run_command(commands[i], 2, help)
                          : run_command(commands[i], argc - 1, argv + 1);
    }
    return wants_help ? say_error("help", cli_manual_print(name, &error), &error)
                      : fail_unknown(name);
}

int main(int argc, char *argv[]) {
    const int status = answer(argc, argv);
    if (status != CLI_SUCCESS || (!fflush(stdout) && !ferror(stdout)))
        return status;
    fprintf(stderr, "moeperf: can't write what it prints: %s\n", strerror(errno));
    return CLI_BAD_INPUT;
}
