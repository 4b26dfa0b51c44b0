#include "harness/predict/what_if_bytes.h"

#include <stdlib.h>
#include <string.h>

int mp_what_if_bytes_create(int ranks, int experts, struct mp_what_if_bytes *bytes,
                            struct mp_error *error) {
    size_t all = (size_t)ranks, kinds = (size_t)experts;
    *bytes = (struct mp_what_if_bytes){.ranks = ranks};
    bytes->in = calloc(all, sizeof *bytes->in);
    bytes->out = calloc(all, sizeof *bytes->out);
    bytes->wanted = calloc(kinds * all, sizeof *bytes->wanted);
    bytes->listed = calloc(kinds, sizeof *bytes->listed);
    bytes->receiver = calloc(all, sizeof *bytes->receiver);
    bytes->hop = calloc(all, sizeof *bytes->hop);
    if (bytes->in && bytes->out && bytes->wanted && bytes->listed && bytes->receiver && bytes->hop)
        return MP_OK;
    mp_what_if_bytes_destroy(bytes);
    return mp_fail(error, MP_ENOMEM, "no memory for transfers of %d experts between %d ranks",
                   experts, ranks);
}

void mp_what_if_bytes_destroy(struct mp_what_if_bytes *bytes) {
    free(bytes->in);
    free(bytes->out);
    free(bytes->wanted);
    free(bytes->listed);
    free(bytes->receiver);
    free(bytes->hop);
    *bytes = (struct mp_what_if_bytes){0};
}

void mp_what_if_bytes_clear(struct mp_what_if_bytes *bytes) {
    memset(bytes->in, 0, (size_t)bytes->ranks * sizeof *bytes->in);
    memset(bytes->out, 0, (size_t)bytes->ranks * sizeof *bytes->out);
}

/* One expert to all ranks that want it, or its sums from them. */
static void carry(struct mp_what_if_bytes *bytes, const struct mp_plan *plan, int expert,
                  double expert_bytes, bool sums) {
    bool *wanted = bytes->wanted + (size_t)expert * (size_t)bytes->ranks;
    int count = 0;
    for (int rank = 0; rank < bytes->ranks; rank++) {
        if (wanted[rank])
            bytes->receiver[count++] = rank;
        wanted[rank] = false;
    }
    mp_hops(&plan->topology, expert, plan->during.owner[expert], bytes->receiver, count,
            bytes->hop);
    for (int i = 0; i < count; i++) {
        const struct mp_hop *hop = &bytes->hop[i];
        bytes->out[sums ? hop->to : hop->from] += expert_bytes;
        bytes->in[sums ? hop->from : hop->to] += expert_bytes;
    }
}

void mp_what_if_bytes_add(struct mp_what_if_bytes *bytes, const struct mp_plan *plan,
                          const struct mp_transfers *list, enum mp_stage stage, bool sums) {
    double expert_bytes = 0; /* all of a list have as many */
    for (int i = 0; i < list->count; i++) {
        const struct mp_transfer *transfer = &list->item[i];
        int rank = sums ? transfer->from : transfer->to;
        if (transfer->stage != stage)
            continue;
        bytes->wanted[(size_t)transfer->expert * (size_t)bytes->ranks + (size_t)rank] = true;
        bytes->listed[transfer->expert] = true;
        expert_bytes = (double)transfer->bytes;
    }
    for (int expert = 0; expert < plan->experts && expert_bytes > 0; expert++) {
        if (bytes->listed[expert])
            carry(bytes, plan, expert, expert_bytes, sums);
        bytes->listed[expert] = false;
    }
}

void mp_what_if_bytes_add_moves(struct mp_what_if_bytes *bytes, const struct mp_transfers *moves) {
    for (int i = 0; i < moves->count; i++) {
        bytes->out[moves->item[i].from] += (double)moves->item[i].bytes;
        bytes->in[moves->item[i].to] += (double)moves->item[i].bytes;
    }
}
