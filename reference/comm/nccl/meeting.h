/* How the ranks of an NCCL world meet: everyone shows a card and gets the cards of all.
 *
 * A card is of fixed size and all hosts are of one byte order.  A rank that can't take part (no
 * NCCL, say) shows a card with the reason, so that the others learn it instead of waiting. */
#ifndef MOEPERF_REFERENCE_COMM_NCCL_MEETING_H
#define MOEPERF_REFERENCE_COMM_NCCL_MEETING_H

#include <sched.h>
#include <stdint.h>

#include "reference/comm/comm.h"
#include "reference/comm/nccl/library.h"

enum { MP_CARD_MAGIC = 0x4d504e43, MP_CARD_VERSION = 1 };

struct mp_card {
    uint32_t magic, version;
    int32_t rank, ranks;
    uint64_t nonce; /* of this process: tells it from ranks of earlier runs */
    int32_t nccl_version, ordinal;
    unsigned char uuid[16]; /* of the GPU; zeros: not known */
    char gpu[128], host[128];
    cpu_set_t cores;
    char failure[512]; /* a sentence; "" if all is well */
    mp_nccl_id id;     /* rank 0's */
};

struct mp_meeting {
    int rank, ranks;
    struct mp_comm *comm; /* or the environment: */
    const char *address, *path;
    char port[16];         /* a number */
    const char *port_name; /* what it is: "MASTER_PORT", or the one above it */
    int seconds;
};

/* Fills the meeting from settings and environment; strings are the environment's.  Errors:
 * MP_EINVAL. */
int mp_meeting_find(const struct mp_nccl_settings *settings, struct mp_meeting *meeting,
                    struct mp_error *error);

/* cards [ranks]: this rank's own is filled in, the others come.  MP_ECOMM: not all came in time,
 * or some do not belong. */
int mp_meeting_hold(const struct mp_meeting *meeting, struct mp_card cards[],
                    struct mp_error *error);

/* By address; by files. */
int mp_meeting_by_address(const struct mp_meeting *meeting, struct mp_card cards[],
                          struct mp_error *error);
int mp_meeting_by_files(const struct mp_meeting *meeting, struct mp_card cards[],
                        struct mp_error *error);

/* Whether `card` is one of this meeting, of a rank that has not come yet: MP_OK, or MP_ECOMM with
 * what is wrong with it.  `came` [ranks] */
int mp_card_check(const struct mp_meeting *meeting, const struct mp_card *card, const bool came[],
                  struct mp_error *error);
/* "ranks 2, 3 and 7": those that have not come. */
void mp_meeting_missing(const struct mp_meeting *meeting, const bool came[], char *text,
                        size_t size);

#endif
