#include "harness/workload/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/workload/format_readers.h"
#include "reference/base/option.h"

enum { AXIS_LIMIT = 65536, LOADS_LIMIT = 1 << 28 };

static int open_native(const struct mp_format *format, const char *path, int experts,
                       struct mp_trace_stream **stream, struct mp_error *error) {
    (void)format, (void)experts;
    return mp_trace_open(path, stream, error);
}

const struct mp_format mp_formats[] = {
    {"csv", "CSV, long, wide or of tokens, as the header tells; a file or the folder of all ranks'",
     mp_format_open_csv, MP_CSV_BY_HEADER, true},
    {"csv-long", "CSV: iteration[,micro_batch],layer,rank,expert,count", mp_format_open_csv,
     MP_CSV_LONG, false},
    {"csv-wide", "CSV: iteration[,micro_batch],layer,rank,e0,e1,...", mp_format_open_csv,
     MP_CSV_WIDE, false},
    {"csv-tokens", "CSV of tokens: [iteration,][rank,]layer,token,k0,k1,...: their experts",
     mp_format_open_csv, MP_CSV_TOKENS, true},
    {"sglang", "JSON {\"logical_count\": [layer][expert]}, SGLang's recorder and EPLB",
     mp_format_open_sglang, 0, false},
    {"vllm-eplb", "JSON dump of vLLM's EPLB, latest load of every snapshot", mp_format_open_vllm, 0,
     false},
    {"npy", "NumPy array, uint32, int32 or int64: last axes of [iteration][layer][rank][expert]",
     mp_format_open_npy, 0, false},
    {"megatron", "JSON lines of Megatron-LM's router tracer, a file or the folder of all ranks'",
     mp_format_open_megatron, 0, true},
    {"megatron-tokens", "the same, and the experts of every token are kept",
     mp_format_open_megatron, 1, true},
    {"native", "moeperf's own .mptrace, checked and written anew", open_native, 0, false},
    {0}};

static int refuse(const char *kind, struct mp_error *error) {
    const struct mp_format *nearest = mp_formats;
    for (const struct mp_format *format = mp_formats; format->name; format++)
        if (mp_word_distance(kind, format->name) < mp_word_distance(kind, nearest->name))
            nearest = format;
    return mp_fail(error, MP_EINVAL, "unknown trace format '%.64s'; the nearest known is '%s'",
                   kind, nearest->name);
}

int mp_format_open(const char *kind, const char *path, int experts, struct mp_trace_stream **stream,
                   struct mp_error *error) {
    if (experts < 0 || experts > AXIS_LIMIT)
        return mp_fail(error, MP_EINVAL, "%s: %d experts; 1 to %d are right", path, experts,
                       AXIS_LIMIT);
    const struct mp_format *format = mp_formats;
    while (format->name && strcmp(format->name, kind) != 0)
        format++;
    if (!format->name)
        return refuse(kind, error);
    if (experts && !format->takes_experts)
        return mp_fail(error, MP_EINVAL,
                       "%s: a %.64s file says itself how many experts there are; --experts is for "
                       "megatron, megatron-tokens and CSV of tokens",
                       path, kind);
    return format->open(format, path, experts, stream, error);
}

static bool has_file(const char *folder, const char *name) {
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           !access(path, F_OK);
}

const char *mp_format_guess(const char *path) {
    static const char *const known[][2] = {{".csv", "csv"},
                                           {".json", "sglang"},
                                           {".jsonl", "megatron"},
                                           {".npy", "npy"},
                                           {".mptrace", "native"}},
                             *const packed[] = {".zst", ".gz"};
    size_t length = strlen(path);
    struct stat status;
    if (!stat(path, &status) && S_ISDIR(status.st_mode))
        return has_file(path, "router_trace_rank0.jsonl") ? "megatron" : "csv";
    for (int i = 0; i < 2; i++)
        if (length > strlen(packed[i]) && !strcmp(path + length - strlen(packed[i]), packed[i]))
            length -= strlen(packed[i]);
    for (size_t i = 0; i < MP_LENGTH(known); i++) {
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
    return info->source && info->notes ? MP_OK : mp_no_memory(error);
}

/* Takes spaces and a pair of quotes off both ends of a whole text. */
static void trim(const char **first, const char **end) {
    while (**first == ' ' || **first == '\t')
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
    bool negative = *text == '-';
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
