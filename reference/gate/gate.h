/* Gates: what chooses the experts of a token.
 *
 * A gate is a descriptor, one file in this folder and one line in gates.c.  Names in jobs, help,
 * SQL, reports and predictions come from it, and nobody else knows kinds of gates: the job asks how
 * many experts a token takes, kernels and the trainer are given the numbers of its rule.
 * README.md says how to add one. */
#ifndef MOEPERF_REFERENCE_GATE_GATE_H
#define MOEPERF_REFERENCE_GATE_GATE_H

#include <stdbool.h>

#include "reference/base/error.h"

/* What a gate's loss counts of the choices. */
enum mp_gate_counts { MP_COUNT_FIRSTS, MP_COUNT_ALL };

/* A gate in numbers. */
struct mp_gate_rule {
    int top_k;        /* experts of a token, K */
    bool renormalise; /* its weights are divided by their sum */

    /* The auxiliary loss is E / loss_divisor times the sum over experts of choices per token times
     * mean probability. */
    enum mp_gate_counts loss_counts;
    int loss_divisor;
};

/* Whether a token's weights are divided by their sum. */
enum mp_gate_weights { MP_WEIGHTS_AS_THEY_ARE, MP_WEIGHTS_DIVIDED, MP_WEIGHTS_EITHER };

struct mp_gate_kind {
    const char *name;   /* lower case, one word */
    const char *title;  /* one line */
    const char *source; /* paper and section, or code */
    const char *models; /* what it does, and what of its source it does not: some sentences */
    int least, most;    /* experts of a token, 1 .. MP_CHOICES_LIMIT */
    int usual;          /* unless the job says otherwise */
    enum mp_gate_weights weights; /* EITHER: as the job says */
    enum mp_gate_counts loss_counts;
};

/* All of them, ended by NULL, and their names as an option's choices: "gshard switch ...". */
extern const struct mp_gate_kind *const mp_gate_kinds[];
extern const char mp_gate_names[];

/* The number of the gate of this name in the list, or -1. */
int mp_gate_find(const char *name);
/* Of the gate that loads of so many experts per token are taken for: the first whose usual number
 * it is, otherwise the first that takes it; the first of all if none does. */
int mp_gate_of_choices(int top_k);

/* The rule of a gate that sends a token to top_k experts, with weights divided or not. */
void mp_gate_rule(const struct mp_gate_kind *kind, int top_k, bool renormalise,
                  struct mp_gate_rule *rule);

/* A gate in words that differ where its choices or weights do: "gshard", "switch", "softmax top-6",
 * "softmax top-6 not renormalised".  Returns `buffer`. */
enum { MP_GATE_WORDS = 48 };
const char *mp_gate_words(const struct mp_gate_kind *kind, const struct mp_gate_rule *rule,
                          char buffer[MP_GATE_WORDS]);
/* Experts of a token, read from such words; 0 where they are of no gate that is known. */
int mp_gate_words_top_k(const char *words);

#endif
