/* Published figures: the JSON texts of this folder, and their rows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "reference/base/option.h"

extern const char mp_paper_fastermoe[], mp_paper_flexmoe[], mp_paper_hecate[], mp_paper_hetumoe[],
    mp_paper_hiermoe[], mp_paper_laer[], mp_paper_moetuner[], mp_paper_smartmoe[], mp_paper_tamoe[],
    mp_paper_tutel[];
extern const char mp_paper_symi[]; /* SYMI was SwiftMoE in its first version */

struct mp_paper {
    const char *name; /* of the system, as `moeperf reproduce` takes it */
    const char *text; /* JSON */
};
/* Ends with a row whose name is NULL. */
extern const struct mp_paper mp_papers[];

/* The paper of this name, or NULL. */
const struct mp_paper *mp_paper_find(const char *name);

/* What a figure counts. */
enum mp_paper_unit {
    MP_PAPER_SPEED_UP, /* another system's time over this one's */
    MP_PAPER_RATIO,
    MP_PAPER_CHANGE, /* fraction: -0.285 is 28.5 % less */
    MP_PAPER_SHARE,  /* fraction of a whole */
    MP_PAPER_COUNT,
    MP_PAPER_MS,
    MP_PAPER_SECONDS,
    MP_PAPER_HOURS,
    MP_PAPER_ITERATIONS,
    MP_PAPER_UNITS
};
/* How we know it.  Read in code, from memory and second-hand figures are hints, not oracles. */
enum mp_paper_certainty {
    MP_PAPER_STATED,      /* in the text of the paper */
    MP_PAPER_IN_CODE,     /* read in released code */
    MP_PAPER_DERIVED,     /* computed from stated figures or released measurements */
    MP_PAPER_SECOND_HAND, /* as others describe it */
    MP_PAPER_FROM_MEMORY, /* not confirmed */
    MP_PAPER_CERTAINTIES
};
const char *mp_paper_unit_name(enum mp_paper_unit unit); /* as in the JSON: "speed-up", ... */
const char *mp_paper_certainty_name(enum mp_paper_certainty certainty);

/* One published figure.  All texts are borrowed from the document. */
struct mp_paper_row {
    const char *id, *what, *setting, *source;
    const char *note; /* NULL if there is none */
    int unit;         /* enum mp_paper_unit */
    int certainty;    /* enum mp_paper_certainty */
    double value;     /* NAN where it is a range */
    double low, high; /* equal for a single value; low is -INFINITY where only "at most" is known */
    int line;
};

enum { MP_PAPER_ROWS = 128 }; /* most of a paper */
struct mp_published {
    const char *paper, *source, *setting;
    struct mp_paper_row row[MP_PAPER_ROWS];
    int rows;
    const struct mp_yaml *document; /* with what other readers ask for, too */
};

/* Reads a paper's text; `name` goes into messages.  MP_EINVAL names the line and what is wrong: a
 * missing or unknown key of a row, an unknown unit or certainty, both value and range, neither, a
 * range the wrong way round, or an id that is not lower case with hyphens; MP_EFORMAT, MP_ENOMEM.
 * mp_published_destroy. */
int mp_published_parse(const char *name, const char *text, struct mp_published **published,
                       struct mp_error *error);
void mp_published_destroy(struct mp_published *published); /* accepts NULL */
MP_END(published, struct mp_published *, mp_published_destroy(*it))

/* What of a figure's number two people would call equal: a single value is met within 10 %, a
 * change or a share within 0.05; a range when the number lies in it; "at most" as the single value
 * that somebody has come to. */
bool mp_paper_inside(const struct mp_paper_row *row, double value);
/* The least and the most that is inside. */
void mp_paper_range(const struct mp_paper_row *row, double *low, double *high);

/* Works that sources name: papers, programs and data sheets, as BibTeX (works.bib).
 *
 * What is modelled says in words where it comes from ("Hecate, arXiv 2502.02581, section 3"); an
 * entry's field `names`, which BibTeX passes over and is not printed, lists words that name it. */

enum { MP_WORKS_MOST = 64 };

extern const char mp_works_bibliography[];

/* The works that a source names, as bits in the order of works.bib: those with a name that stands
 * in it as a word of its own. */
uint64_t mp_works_named(const char *source);

/* Their keys, with commas between them; and their entries, with an empty line in front of each. */
void mp_works_print_keys(uint64_t works, FILE *out);
void mp_works_print(uint64_t works, FILE *out);
