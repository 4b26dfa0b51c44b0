/* moeperf place: where a system would put experts for given loads, and whether that pays. */
#include "harness/cli/place.h"

#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_job.h"
#include "harness/cli/system_words.h"
#include "harness/suite/suite.h"
#include "reference/base/characters.h"

enum { SETTING_SIZE = MP_TEXT_SIZE + 32 };

struct place_flags {
    struct cli_job_flags job;
    const char *system, *output, *kind, *history;
    bool decide, json;
};

static struct place_flags given;

static const struct cli_flag known_flags[] = {
    {"--trace", CLI_VALUE, &given.job.trace, "FILE",
     "the loads: a trace, or what moeperf import reads by\n"
     "its ending, as SGLang's recorder writes it"},
    {"--loads", CLI_VALUE, &given.job.loads, "TEXT",
     "the loads: a generator and its options in one word\n"
     "(moeperf generate --help)"},
    {"--cluster", CLI_VALUE, &given.job.cluster, "NAME",
     "a ready-made cluster (moeperf list clusters) or a file"},
    {"--nodes", CLI_WHOLE, CLI_NUMBER(&given.job.nodes, 1, CLI_NODES_MOST), "N",
     "so many nodes of it instead"},
    {"--system", CLI_VALUE, &given.system, "NAME[:OPTION=VALUE,...]",
     "whose planner places (eplb): one whose homes change"},
    {"--decide", CLI_SWITCH, &given.decide, NULL, "says whether to turn the system on, and why"},
    {"--history", CLI_VALUE, &given.history, "N%",
     "of the iterations, the first that the placement is made\n"
     "of (50%); it is judged on the rest"},
    {"-o", CLI_VALUE, &given.output, "OUT", "file to write the placement to"},
    {"--as", CLI_VALUE, &given.kind, "KIND",
     "json (the default); sglang: --init-expert-location;\n"
     "vllm: vLLM Ascend's expert_map_path"},
    {"--set", CLI_REPEATED, &given.job.set, "KEY=VALUE",
     "sets an option of the job, predict.KEY=VALUE one of\n"
     "predictions, options.KEY=VALUE one of the system; may\n"
     "be repeated"},
    {"--iterations", CLI_WHOLE, CLI_NUMBER(&given.job.iterations, 1, CLI_ITERATIONS_MOST), "N",
     "at most so many (30 of a generator, 100 of a trace)"},
    {"--fit", CLI_SWITCH, &given.job.fit, NULL, "folds or splits a trace of another shape"},
    {"--json", CLI_SWITCH, &given.json, NULL, "prints one JSON object"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf place (--trace FILE | --loads TEXT) --cluster NAME [options]",
    "Runs a system's planner over recorded loads and takes the placement of experts\n"
    "that it ends with: how even it makes ranks, what it saves and costs, as\n"
    "predicted on later loads than it was made of, and as a file that serving\n"
    "engines read.  With --decide it answers first what to ask before a balancer is\n"
    "turned on; \"leave it off\" is an answer, and every answer ends with status 0.",
    known_flags,
    0,
    0,
    "  moeperf place --trace counts.json --cluster b200 --system eplb:replicas=288 \\\n"
    "    --as sglang -o placement.json\n"
    "  moeperf place --trace loads.mptrace --cluster h100 --decide\n"
    "  moeperf place --loads \"dynamics seed=3\" --cluster hecate-b --system smartmoe \\\n"
    "    --history 30% --decide --json\n"};

/* ---- the job ---- */

/* The system with its options, from --system and from --set. */
static int set_system(const struct place_flags *flags, const struct mp_systems *systems,
                      struct mp_predict_job *job, struct mp_error *error) {
    struct cli_system_words words;
    char text[SETTING_SIZE];
    MP_TRY(cli_system_words_parse(systems, flags->system ? flags->system : "eplb", &words, error));
    snprintf(text, sizeof text, "system=%s", words.system->name);
    MP_TRY(mp_predict_job_set(job, text, systems, error));
    for (int i = 0; i < words.options; i++) {
        snprintf(text, sizeof text, "options.%s=%s", words.option[i][0], words.option[i][1]);
        MP_TRY(mp_predict_job_set(job, text, systems, error));
    }
    for (int i = 0; i < flags->job.set.count; i++)
        if (!strncmp(flags->job.set.word[i], "options.", 8))
            MP_TRY(mp_predict_job_set(job, flags->job.set.word[i], systems, error));
    return MP_OK;
}

static bool is_set(const struct place_flags *flags, const char *key) {
    const size_t length = strlen(key);
    for (int i = 0; i < flags->job.set.count; i++)
        if (!strncmp(flags->job.set.word[i], key, length) && flags->job.set.word[i][length] == '=')
            return true;
    return false;
}

enum { DECODED = 128, CACHED = 2048 }; /* sequences of a rank, and tokens of each */

/* Loads that a serving engine recorded are predicted as serving unless a mode is set: decode if
 * their name has that word, else prefill.  What was chosen goes into `words`. */
static int choose_mode(const struct place_flags *flags, const struct mp_cluster *cluster,
                       struct mp_predict_job *job, char *words, size_t size,
                       struct mp_error *error) {
    struct mp_trace_stream *stream;
    struct mp_job *sizes = &job->file.job;
    *words = '\0';
    if (is_set(flags, "mode") || flags->job.loads)
        return MP_OK;
    MP_TRY(mp_predict_job_loads(job, cluster, &stream, error));
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    const bool serving = strstr(info->source, "(sglang)") || strstr(info->source, "(vllm-eplb)");
    const bool decoding = serving && strstr(info->source, "decode"), of_run = info->of_run;
    mp_trace_stream_destroy(stream);
    if (!serving)
        return MP_OK;
    sizes->mode = decoding ? MP_MODE_DECODE : MP_MODE_PREFILL;
    if (decoding && !is_set(flags, "batch"))
        sizes->batch = of_run ? DECODED * sizes->ranks : sizes->batch * sizes->sequence;
    if (decoding && !is_set(flags, "context"))
        sizes->context = CACHED;
    snprintf(words, size,
             "A serving engine recorded these loads, so %s is predicted%s: %d sequences per rank "
             "with %d tokens in the cache (--set mode=, batch=, context=).",
             decoding ? "decode" : "prefill", decoding ? ", as their name says" : "",
             sizes->batch / sizes->ranks, sizes->context);
    return MP_OK;
}

static int prepare(const struct place_flags *flags, const struct mp_systems *systems,
                   struct mp_predict_job *job, struct mp_cluster **cluster, char *words,
                   size_t size, struct mp_error *error) {
    struct cli_job_settings *settings = calloc(1, sizeof *settings);
    if (!settings)
        return mp_no_memory(error);
    int code = cli_read_job_flags(&flags->job, settings, error);
    if (!code && !flags->job.trace && !flags->job.loads)
        code = mp_fail(error, MP_EINVAL, "--trace and --loads: give one of them");
    if (!code)
        code = cli_prepare_job(systems, &settings->all, job, error);
    free(settings);
    MP_TRY(code);
    MP_TRY(set_system(flags, systems, job, error));
    MP_TRY(mp_suite_job_cluster(job, cluster, error));
    MP_TRY(choose_mode(flags, *cluster, job, words, size, error));
    return mp_predict_job_check(job, *cluster, error);
}

/* ---- the command ---- */

static int find_format(const struct place_flags *flags, enum mp_place_format *format,
                       struct mp_error *error) {
    *format = MP_PLACE_JSON;
    if (!flags->kind)
        return MP_OK;
    if (!flags->output)
        return mp_fail(error, MP_EINVAL, "--as says how to write; -o OUT says where to");
    for (*format = 0; *format < MP_PLACE_FORMATS; ++*format)
        if (!strcmp(flags->kind, mp_place_format_name(*format)))
            return MP_OK;
    return mp_fail(error, MP_EINVAL, "--as %.40s: should be json, sglang or vllm", flags->kind);
}

static int print(const struct place_flags *flags, const struct cli_placed *placed,
                 struct mp_error *error) {
    FILE *out = placed->output ? cli_beside(placed->output) : stdout;
    if (flags->json)
        return cli_print_json(cli_pack_placed(placed), error);
    if (flags->decide)
        cli_print_decision(placed, out);
    else
        cli_print_placement(placed, out);
    return MP_OK;
}

static int place_with(const struct place_flags *flags, const struct mp_predict_job *job,
                      const struct mp_cluster *cluster, const char *mode, double share,
                      enum mp_place_format format, struct mp_error *error) {
    struct mp_place_loads loads;
    struct mp_decision decision = {0};
    char made_by[MP_TEXT_SIZE];
    MP_TRY(mp_place_loads_read(job, cluster, &loads, error));
    int code = mp_decide(&loads, share, &decision, error);
    snprintf(made_by, sizeof made_by, "moeperf place, system %s, loads %.1000s",
             job->file.system->name, loads.source);
    if (!code && flags->output)
        code = mp_place_write(flags->output, format, &decision.placed.after, loads.dense_layers,
                              made_by, error);
    const struct cli_placed placed = {&loads, &decision, mode, flags->output, format};
    if (!code)
        code = print(flags, &placed, error);
    mp_decision_destroy(&decision);
    mp_place_loads_destroy(&loads);
    return code;
}

static int place(const struct cli_call *call, struct mp_error *error) {
    struct mp_predict_job job;
    struct mp_cluster *cluster = NULL;
    enum mp_place_format format;
    double percent = 50;
    char mode[512];
    if (given.job.loads && !given.job.iterations)
        given.job.iterations = 30;
    if (given.history && (!mp_real_number(given.history, "%", 0, 100, &percent) || percent == 0))
        return mp_fail(error, MP_EINVAL,
                       "--history %.40s: should be a share of the iterations, above 0 up to 100%%",
                       given.history);
    MP_TRY(find_format(&given, &format, error));
    MP_TRY(mp_predict_job_create(&job, error));
    int code = prepare(&given, call->systems, &job, &cluster, mode, sizeof mode, error);
    if (!code)
        code = place_with(&given, &job, cluster, mode, percent / 100, format, error);
    mp_cluster_destroy(cluster);
    mp_predict_job_destroy(&job);
    return code;
}

const struct cli_command cli_place = {
    "place", "places experts by a system's planner, and says whether that pays", place,
    .usage = &usage};
