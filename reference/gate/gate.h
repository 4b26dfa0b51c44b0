/* Gates: what chooses the experts of a token.
 *
 * A gate is a descriptor, one file in this folder and one line in gates.c.  Names in jobs, help,
 * SQL, reports and predictions come from it, and nobody else knows kinds of gates: the job asks how
 * many experts a token takes, kernels and the trainer are given the numbers of its rule.
 * README.md says how to add one. */
#pragma once

#include "reference/base/option.h"
#include "reference/device/device.h"
#include "reference/plan/topology.h"

/* What a gate may know of a job.  The same on every rank. */
struct mp_gate_sizes {
    int experts, top_k;
    int64_t tokens; /* of all ranks, per iteration */
    int sequence;   /* tokens of one */
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
    const struct mp_option *options; /* table, or NULL for none */
    size_t options_size;             /* bytes of the options struct, at most MP_GATE_OPTIONS_SIZE */

    /* Optional.  Completes a rule that has what the fields above say; loss_divisor is K where all
     * choices are counted, and 1.  MP_EINVAL with the option, the constraint and the numbers. */
    int (*complete)(const struct mp_gate_sizes *sizes, const void *options,
                    struct mp_gate_rule *rule, struct mp_error *error);
    /* Required of MP_SCORES_FORCED without a matching, and of no other: the expert of every token
     * (a byte of text) in a layer, choice [tokens]. */
    void (*choose)(const struct mp_gate_sizes *sizes, const void *options, int layer, int tokens,
                   const int32_t *token, int32_t *choice);
    /* Optional.  What a rank's balancing loss counts each expert by, factor [experts]: 1 without
     * it.
     */
    void (*loss_factors)(const struct mp_gate_sizes *sizes, const void *options,
                         const struct mp_topology *topology, int rank, double factor[]);
};

/* Parsed options of any gate. */
enum { MP_GATE_OPTIONS_SIZE = 64 };
struct mp_gate_values {
    _Alignas(8) unsigned char bytes[MP_GATE_OPTIONS_SIZE];
};

/* All of them, ended by NULL, and their names as an option's choices: "gshard switch ...". */
extern const struct mp_gate_kind *const mp_gate_kinds[];
extern const char mp_gate_names[];

/* The number of the gate of this name in the list, or -1. */
int mp_gate_find(const char *name);
/* Of the gate that loads of so many experts per token are taken for: the first that takes as many,
 * or the first of all if none does. */
int mp_gate_of_choices(int top_k);

/* A gate's rule for a job, with weights divided or not where it leaves that open.  MP_EINVAL as
 * `complete`. */
int mp_gate_rule(const struct mp_gate_kind *kind, const struct mp_gate_sizes *sizes,
                 bool renormalise, const struct mp_gate_values *options, struct mp_gate_rule *rule,
                 struct mp_error *error);

/* MP_EINVAL unless so many groups of experts, which `option` says, are equal in size and `kept` of
 * them have as many experts as a token takes. */
int mp_gate_check_groups(const struct mp_gate_sizes *sizes, const char *option, int groups,
                         int kept, struct mp_error *error);

/* A gate in words that differ where its choices, weights or losses do: "gshard", "softmax top-6",
 * "softmax top-6 not renormalised", "hash seed=3" (options that are not at their default).  Returns
 * `buffer`. */
enum { MP_GATE_WORDS = 192 };
const char *mp_gate_words(const struct mp_gate_kind *kind, int top_k, bool renormalise,
                          const struct mp_gate_values *options, char buffer[MP_GATE_WORDS]);
/* Experts of a token, read from such words; 0 where they are of no gate that is known. */
int mp_gate_words_top_k(const char *words);
