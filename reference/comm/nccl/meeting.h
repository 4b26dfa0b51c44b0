/* How the ranks of an NCCL world meet: everyone shows a card and gets the cards of all.
 *
 * Ranks that have met over another comm, MPI above all, show their cards there.  Others meet by
 * files in a folder that belongs to the user and that nobody else may write to, so that whoever
 * shows a card is the user's own: ranks that are all on one host (LOCAL_WORLD_SIZE is WORLD_SIZE)
 * in TMPDIR/moeperf-UID (TMPDIR is /tmp unless it is set), by names made of MASTER_PORT and
 * TORCHELASTIC_RUN_ID; ranks on several hosts in the folder that MOEPERF_RENDEZVOUS=file:/FOLDER
 * names on a file system which all share.  NCCL needs nothing more than the cards: it makes its
 * connections itself.
 *
 * A card is of fixed size and all hosts are of one byte order.  A rank that can't take part (no
 * NCCL, say) shows a card with the reason, so that the others learn it instead of waiting. */
#pragma once

#include <sched.h>
#include <stdint.h>

#include "reference/comm/nccl/library.h"
#include "reference/comm/transport.h"

enum { MP_MEETING_MAGIC = 0x4d504e43, MP_MEETING_VERSION = 3 };

struct mp_card {
    int32_t rank, ranks;
    uint64_t nonce; /* of this process: tells it from ranks of other runs; never 0 */
    int32_t nccl_version, ordinal;
    unsigned char uuid[16]; /* of the GPU; zeros: not known */
    int32_t processors;     /* multiprocessors of the GPU; 0: not known */
    char gpu[128], host[128];
    cpu_set_t cores;
    char failure[512];            /* a sentence; "" if all is well */
    mp_nccl_id id[MP_COMM_LANES]; /* rank 0's */
};

struct mp_meeting {
    int rank, ranks;
    struct mp_comm *comm; /* or, if NULL, files FOLDER/NAME.*: */
    char folder[1024], name[96];
    int seconds; /* how long ranks wait for each other */
};

/* Fills the meeting from settings and environment.  Errors: MP_EINVAL. */
int mp_meeting_find(const struct mp_nccl_settings *settings, struct mp_meeting *meeting,
                    struct mp_error *error);

/* cards [ranks]: this rank's own is filled in, the others are zeros and come.  MP_ECOMM: not all
 * came in time, or some do not belong; MP_EINVAL: a folder or file that somebody else could have
 * written; MP_EIO. */
int mp_meeting_hold(const struct mp_meeting *meeting, struct mp_card cards[],
                    struct mp_error *error);

/* By files. */
int mp_meeting_by_files(const struct mp_meeting *meeting, struct mp_card cards[],
                        struct mp_error *error);
