/* moeperf reshape: a trace for another number of ranks, experts, layers or tokens. */
#include "harness/workload/reshape.h"

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "reference/base/characters.h"

static struct {
    const char *output, *tilt;
    bool merge;
    struct mp_reshape wanted;
} given;

static const struct cli_flag known_flags[] = {
    {"-o", CLI_VALUE, &given.output, "OUT", "trace to write, OUT.mptrace by custom"},
    {"--ranks", CLI_COUNT, CLI_NUMBER(&given.wanted.ranks, 1, INT32_MAX), "R",
     "neighbouring sources are added up, or every one is split evenly"},
    {"--experts", CLI_COUNT, CLI_NUMBER(&given.wanted.experts, 1, INT32_MAX), "E",
     "neighbouring experts are added up, or every one is split"},
    {"--tilt", CLI_VALUE, &given.tilt, "X",
     "with more experts: share of the first of two halves, 0.5 (the\n"
     "default) to 1"},
    {"--layers", CLI_COUNT, CLI_NUMBER(&given.wanted.layers, 1, 65536), "L",
     "evenly spread layers are kept, or every one is repeated"},
    {"--merge-micro-batches", CLI_SWITCH, &given.merge, NULL, "those of an iteration are added up"},
    {"--tokens", CLI_WHOLE, CLI_NUMBER(&given.wanted.tokens, 1, INT32_MAX), "T",
     "routes of every source and micro-batch are scaled to T times the\n"
     "experts per token, at most T to an expert"},
    {"--top-k", CLI_COUNT, CLI_NUMBER(&given.wanted.top_k, 1, INT32_MAX), "K",
     "experts per token, if the trace does not know; without --tokens\n"
     "an expert with more routes of a source than that has tokens is\n"
     "an error"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf reshape IN.mptrace -o OUT.mptrace [options]",
    "Makes a trace for another machine or model.  Without --tokens no route is lost or\n"
    "added.  Numbers of ranks and experts have to divide, or be multiples of, the\n"
    "trace's.  What was done is in the new trace's notes.",
    known_flags,
    1,
    1,
    "  moeperf generate zipf -o zipf.mptrace --ranks 16 --experts 32 --iterations 3\n"
    "  moeperf reshape zipf.mptrace -o small.mptrace --ranks 8 --experts 64 --layers 1\n"
    "  moeperf reshape zipf.mptrace -o scaled.mptrace --ranks 4 --tokens 1000\n"};

static int reshape(const struct cli_call *call, struct mp_error *error) {
    struct mp_trace_stream *source, *stream;
    if (!given.output)
        return mp_fail(error, MP_EINVAL, "-o OUT.mptrace is missing: which file to write");
    given.wanted.micro_batches = given.merge ? 1 : 0;
    if (given.tilt && !mp_real_number(given.tilt, "", 0.5, 1, &given.wanted.tilt))
        return mp_fail(error, MP_EINVAL, "--tilt %.100s: should be a number from 0.5 to 1",
                       given.tilt);
    MP_TRY(mp_trace_open(call->words->word[0], &source, error));
    MP_TRY(mp_trace_reshape(source, &given.wanted, &stream, error));
    return cli_write_trace(stream, given.output, error);
}

const struct cli_command cli_reshape = {"reshape",
                                        "makes a trace for other ranks, experts, layers or tokens",
                                        reshape, .usage = &usage};
