/* Machine: what the machine at hand reaches when it trains, measured with the operations that the
 * trainer itself calls, and written as a cluster (harness/cluster/cluster.h has the keys).
 *
 * All ranks measure at once, since in training all work at once: they share memory, and perhaps
 * cores.  A rank of one thread that has a core of its own counts the processor's time of its work,
 * so that others on the machine disturb little, and the mean of repetitions: what slows some of
 * them down slows iterations down as often.  Else, and for messages, it is the wall's time and the
 * lower quartile (other work only ever adds to it, but the fastest is luck), or the mean where
 * ranks share cores.  Figures are means over ranks, of messages the slowest rank's.  All are
 * measured in several rounds, which lie seconds apart, and the median over rounds is taken: what
 * the machine sustains, with a moment in which it was faster or slower left out.  Memory that is
 * read or written lies in a large buffer of which every repetition takes another part: experts do
 * not lie in the cache either.
 */
#pragma once

#include <stdbool.h>

#include "reference/comm/comm.h"

enum { MP_MACHINE_POINTS = 16 }; /* most of an axis */

struct mp_machine_settings {
    int threads; /* of a rank, for matrix work */
    bool quick;  /* fewer sizes and one round: a few seconds instead of about a minute */
    /* Called on every rank when a step is done, with the time it took; may be NULL. */
    void (*progress)(void *context, int done, int steps, double seconds);
    void *context;
};

/* How long bytes took: one way between two ranks, and in an exchange of all, of which each sends
 * and gets so many. */
struct mp_machine_transfer {
    double bytes, one_way, exchange; /* B, s, s */
};

struct mp_machine {
    int ranks, threads;
    bool shares_cores;       /* ranks outnumber the cores they may use */
    double peak;             /* FLOP/s: the fastest product of all sizes */
    double memory;           /* B of a rank: the machine's by its ranks */
    double memory_bandwidth; /* B/s of a large copy, read and written */
    double launch;           /* s: the smallest product */
    double elementwise;      /* B/s of gelu, layer norm and addition, both ways */
    double update;           /* B/s of AdamW: 28 B per parameter */
    double attention;        /* share of the peak: 2 products forward, 5 backward, half masked */
    double copy_bandwidth;   /* B/s of rows that stay on their rank, and what none take: */
    double copy_latency;
    /* With several ranks: the line through exchanges, and the share of a transfer that passes
     * beside products, in whose pauses it moves on. */
    double bandwidth, latency, overlap;
    int transfers;
    struct mp_machine_transfer transfer[MP_MACHINE_POINTS];
    /* Products: share[0][i][j] of the peak at tokens[i] and width[j] of those of the forward pass,
     * share[1] of those that give gradients. */
    int rows, columns;
    double tokens[MP_MACHINE_POINTS], width[MP_MACHINE_POINTS];
    double share[2][MP_MACHINE_POINTS][MP_MACHINE_POINTS];
};

/* Collective; the same figures on every rank.  Errors: MP_EINVAL (ranks on several machines),
 * MP_ENOMEM, those of comm and device. */
int mp_machine_measure(struct mp_comm *comm, const struct mp_machine_settings *settings,
                       struct mp_machine *machine, struct mp_error *error);

/* The name of this machine's processor; "unknown" where the system does not tell. */
void mp_machine_processor(char *name, size_t size);

/* Writes a cluster file in which every number says that it was measured, when and on which
 * `processor`.  MP_EIO, MP_ENOSPACE: nothing is left of the file then. */
int mp_machine_write(const struct mp_machine *machine, const char *processor, const char *path,
                     struct mp_error *error);
