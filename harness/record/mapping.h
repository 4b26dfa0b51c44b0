/* Mapping: the ranges that one process recorded, made spans by rules.
 *
 * Where mapped ranges of one thread lie in one another, the outermost is the span, so that no time
 * counts twice; iterations enclose all others, and spans of stream "comm" lie beside them.  What
 * waits for other ranks inside of a span that does not is a span, too, of its layer: the outer one
 * is cut into pieces around it, of which the one that its rule's spans are longest in has the
 * tokens.
 *
 * Echoes (enum mp_range_trait) take layer, iteration and tokens of the range that they are of, and
 * fall away with it; where a GPU has done a range's work, its time there is the span. */
#pragma once

#include "harness/record/recorded_loads.h"
#include "harness/record/rules.h"
#include "profiler/record/spool.h"
#include "results/store/clock_fit.h"

struct mp_mapping;

struct mp_mapping_totals {
    int64_t ranges;         /* marks included */
    int64_t spans;          /* that they became */
    int64_t of_model;       /* spans of a phase of the model */
    int64_t combines;       /* spans that are combine by their order only (matches.h) */
    int64_t counted;        /* dispatches of numbered layers, where there is no combine at all */
    int64_t enclosed;       /* matched a rule, and lie in another span */
    int64_t unfinished;     /* were open at the end, matched or not */
    int64_t iterations;     /* spans of phase iteration ... */
    int64_t first, last;    /* ... and their numbers; 0 and -1 without any */
    int64_t unmatched_ends; /* pops without a push, as the collector counted */
    int64_t lost;           /* likewise; 0 also where the process was killed */
    double pair_ns;         /* cost of a range as the collector measured it; 0: it did not */
    double seconds;         /* from the first range to the last */
    bool ended;             /* its spool has an end */
    char launch[64];        /* what its launcher called the run (launched.h); "": not known */
    struct mp_spool_header header;
};

/* Whether the phase is one of a model's forward or backward pass. */
bool mp_mapping_of_model(int phase);
/* Whether ranks wait for each other in it. */
bool mp_mapping_of_exchange(int phase);

/* Reads a spool and applies the rules.  Errors: those of mp_spool_open, MP_ENOMEM. */
int mp_mapping_create(const char *path, const struct mp_rules *rules, struct mp_mapping **mapping,
                      struct mp_error *error);
void mp_mapping_destroy(struct mp_mapping *mapping); /* accepts NULL */

const struct mp_mapping_totals *mp_mapping_totals(const struct mp_mapping *mapping);

/* The most frequent name that no rule matches, as a hint; NULL: there is none. */
const char *mp_mapping_unmatched(const struct mp_mapping *mapping, int64_t *count);

/* A range of a rule that says `waits: all`: nobody leaves it before all have come. */
struct mp_mapping_wait {
    int rule; /* its place in the rules */
    int32_t iteration;
    int64_t start_ns, end_ns;
};
/* The next one of those that became spans, by start; `*next` begins with 0.  false: no more. */
bool mp_mapping_next_wait(const struct mp_mapping *mapping, size_t *next,
                          struct mp_mapping_wait *wait);

/* What a mapped spool says beside what was read. */
struct mp_mapped {
    int rank, ranks, node;
    const char *host;                  /* NULL: as in the spool that was read */
    int64_t realtime_ns;               /* when it began; 0: likewise */
    const struct clock_sample *sample; /* [samples] */
    int samples;
    const struct mp_record_loads *loads; /* of all ranks; those of its iterations are written */
};

/* Writes a spool for mp_store_ingest: the one that was read with its spans; of a collector of GPU
 * work (MP_DEVICE_ENDING) no more than that its process was there.  Errors: those of
 * spool_file_create and _append; MP_ELIMIT for more experts than a record has room for. */
int mp_mapping_write(const struct mp_mapping *mapping, const char *path, const struct mp_mapped *as,
                     struct mp_error *error);
