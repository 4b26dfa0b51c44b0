/* Gates under which losses are compared with those of one rank. */
#pragma once

struct gate {
    const char *name;
    const char *settings;
};

/* Of a job with 8 experts or more.  The first two meet every case of exact_test.c.  The others,
 * with more experts per token or another rule, share one case of every system, by turns that begin
 * where the seed says. */
static const struct gate gates[] = {
    {"gshard", "gate=gshard"},
    {"switch", "gate=switch"},
    {"softmax", "gate=softmax top-k=4 gate-options.z-loss=0.01"},
    {"hash", "gate=hash"},
    {"beside a shared expert", "gate=gshard shared-experts=1"},
    {"ktop1", "gate=ktop1 top-k=4 gate-options.balance-over=sequence"},
    {"gshard random", "gate=gshard gate-options.second=random"},
    {"dts", "gate=dts top-k=4 gate-options.last-temperature=0.5 gate-options.anneal=40"},
    /* The alignment loss has an edge where an expert's probability passes the last choice's: which
     * side rounding is on decides about a gradient.  Its own tests have it. */
    {"sam", "gate=sam top-k=2 gate-options.groups=4 gate-options.alignment-weight=0"},
    {"base", "gate=base"},
    {"expert choice", "gate=expertchoice top-k=3"},
    {"sigmoid", "gate=sigmoid top-k=4 gate-options.groups=2 gate-options.bias-rate=0.01"},
};
enum { GATES = sizeof gates / sizeof *gates, FIRST = 2 };
