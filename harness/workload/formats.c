#include "harness/workload/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/workload/format_readers.h"
#include "reference/base/option.h"

enum { AXIS_LIMIT = 65536, LOADS_LIMIT = 1 << 28 };

const struct mp_format mp_formats[] = {
    {"csv", "CSV, long or wide, as the header tells; a file or the folder of all ranks'"},
    {"csv-long", "CSV: iteration[,micro_batch],layer,rank,expert,count"},
    {"csv-wide", "CSV: iteration[,micro_batch],layer,rank,e0,e1,..."},
    {"csv-tokens", "CSV of tokens: [iteration,][rank,]layer,token,k0,k1,...: their experts"},
    {"sglang", "JSON {\"logical_count\": [layer][expert]}, SGLang's recorder and EPLB"},
    {"vllm-eplb", "JSON dump of vLLM's EPLB, latest load of every snapshot"},
    {"npy", "NumPy array, uint32, int32 or int64: last axes of [iteration][layer][rank][expert]"},
    {"megatron", "JSON lines of Megatron-LM's router tracer, a file or the folder of all ranks'"},
    {"megatron-tokens", "the same, and the experts of every token are kept"},
    {NULL, NULL}};

static int refuse(const char *kind, struct mp_error *error) {
    const struct mp_format *nearest = mp_formats;
    for (const struct mp_format *format = mp_formats; format->name; format++)
        if (mp_word_distance(kind, format->name) < mp_word_distance(kind, nearest->name))
            nearest = format;
    return mp_fail(error, MP_EINVAL, "unknown trace format '%.64s'; the nearest known is '%s'",
                   kind, nearest->name);
}

int mp_format_open(const char *kind, const char *path, struct mp_trace_stream **stream,
                   struct mp_error *error) {
    return mp_format_open_with(kind, path, NULL, stream, error);
}

int mp_format_open_with(const char *kind, const char *path, const struct mp_format_options *options,
                        struct mp_trace_stream **stream, struct mp_error *error) {
    const int experts = options ? options->experts : 0;
    if (experts < 0 || experts > AXIS_LIMIT)
        return mp_fail(error, MP_EINVAL, "%s: %d experts; 1 to %d are right", path, experts,
                       AXIS_LIMIT);
    if (!strcmp(kind, "megatron"))
        return mp_format_open_megatron(path, experts, false, stream, error);
    if (!strcmp(kind, "megatron-tokens"))
        return mp_format_open_megatron(path, experts, true, stream, error);
    if (!strcmp(kind, "csv-tokens"))
        return mp_format_open_tokens(path, experts, stream, error);
    if (experts)
        return mp_fail(error, MP_EINVAL,
                       "%s: a %.64s file says itself how many experts there are; --experts is for "
                       "megatron, megatron-tokens and csv-tokens",
                       path, kind);
    if (!strcmp(kind, "csv"))
        return mp_format_open_csv(path, MP_CSV_BY_HEADER, stream, error);
    if (!strcmp(kind, "csv-long"))
        return mp_format_open_csv(path, MP_CSV_LONG, stream, error);
    if (!strcmp(kind, "csv-wide"))
        return mp_format_open_csv(path, MP_CSV_WIDE, stream, error);
    if (!strcmp(kind, "sglang"))
        return mp_format_open_sglang(path, stream, error);
    if (!strcmp(kind, "vllm-eplb"))
        return mp_format_open_vllm(path, stream, error);
    if (!strcmp(kind, "npy"))
        return mp_format_open_npy(path, stream, error);
    return refuse(kind, error);
}

static bool has_file(const char *folder, const char *name) {
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           !access(path, F_OK);
}

const char *mp_format_guess(const char *path) {
    static const char *const known[][2] = {
        {".csv", "csv"}, {".json", "sglang"}, {".jsonl", "megatron"}, {".npy", "npy"}};
    size_t length = strlen(path);
    struct stat status;
    if (!stat(path, &status) && S_ISDIR(status.st_mode))
        return has_file(path, "router_trace_rank0.jsonl") ? "megatron" : "csv";
    if (length > 4 && !strcmp(path + length - 4, ".zst"))
        length -= 4;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t ending = strlen(known[i][0]);
        if (length > ending && !strncmp(path + length - ending, known[i][0], ending))
            return known[i][1];
    }
    return NULL;
}

int mp_format_check_shape(const char *path, const struct mp_trace_shape *shape,
                          struct mp_error *error) {
    const int axis[] = {shape->ranks, shape->experts, shape->layers, shape->micro_batches};
    int64_t loads = 1;
    for (int i = 0; i < 4; i++) {
        bool fits = axis[i] >= 1 && axis[i] <= AXIS_LIMIT && loads * axis[i] <= LOADS_LIMIT;
        if (!fits)
            return mp_fail(
                error, MP_ELIMIT,
                "%s: %d ranks, %d experts, %d layers and %d micro-batches: each has to be "
                "1 to %d and all together at most %d loads per iteration",
                path, shape->ranks, shape->experts, shape->layers, shape->micro_batches, AXIS_LIMIT,
                LOADS_LIMIT);
        loads *= axis[i];
    }
    return MP_OK;
}

int mp_format_describe(const char *path, const char *kind, const char *notes,
                       struct mp_trace_info *info, struct mp_error *error) {
    if (asprintf(&info->source, "%s (%s)", path, kind) < 0)
        info->source = NULL;
    info->notes = strdup(notes);
    if (info->source && info->notes)
        return MP_OK;
    free(info->source);
    free(info->notes);
    info->source = info->notes = NULL;
    return mp_fail(error, MP_ENOMEM, "%s: no memory for its description", path);
}

/* Takes spaces and a pair of quotes off both ends. */
static void trim(const char **first, const char **end) {
    while (*first < *end && (**first == ' ' || **first == '\t'))
        ++*first;
    while (*end > *first && ((*end)[-1] == ' ' || (*end)[-1] == '\t'))
        --*end;
    if (*end - *first >= 2 && **first == '"' && (*end)[-1] == '"') {
        ++*first;
        --*end;
    }
}

const char *mp_format_whole(const char *text, int64_t most, int64_t *value) {
    const char *end = text + strlen(text);
    trim(&text, &end);
    bool negative = text < end && *text == '-';
    text += negative;
    int digits = 0;
    int64_t sum = 0;
    bool large = false;
    for (; text < end && *text >= '0' && *text <= '9'; text++, digits++) {
        large = large || sum > (most - (*text - '0')) / 10;
        sum = large ? sum : 10 * sum + (*text - '0');
    }
    bool fraction = false;
    if (digits && text < end && *text == '.')
        for (text++; text < end && *text >= '0' && *text <= '9'; text++)
            fraction = fraction || *text != '0';
    if (!digits || text < end)
        return "is not a whole number";
    if (negative)
        return "is negative";
    if (fraction)
        return "is not whole";
    if (large)
        return "is too large";
    *value = sum;
    return NULL;
}
