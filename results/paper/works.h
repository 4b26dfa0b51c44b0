/* Works that sources name: papers, programs and data sheets, as BibTeX (works.bib).
 *
 * What is modelled says in words where it comes from ("Hecate, arXiv 2502.02581, section 3"); an
 * entry's field `names`, which BibTeX passes over and is not printed, lists words that name it. */
#ifndef MOEPERF_RESULTS_PAPER_WORKS_H
#define MOEPERF_RESULTS_PAPER_WORKS_H

#include <stdint.h>
#include <stdio.h>

enum { MP_WORKS_MOST = 64 };

extern const char mp_works_bibliography[];

/* The works that a source names, as bits in the order of works.bib: those with a name that stands
 * in it as a word of its own. */
uint64_t mp_works_named(const char *source);

/* Their keys, with commas between them; and their entries, with an empty line in front of each. */
void mp_works_print_keys(uint64_t works, FILE *out);
void mp_works_print(uint64_t works, FILE *out);

#endif
