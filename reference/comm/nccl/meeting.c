#include "reference/comm/nccl/meeting.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_SECONDS = 120 };

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int read_number(const char *name, int least, int most, int *value, struct mp_error *error) {
    const char *text = variable(name);
    char *end;
    long number = text ? strtol(text, &end, 10) : -1;
    if (!text || *end || number < least || number > most)
        return mp_fail(error, MP_EINVAL, "%s=%s in the environment; it takes a number %d .. %d",
                       name, text ? text : "", least, most);
    *value = (int)number;
    return MP_OK;
}

/* torchrun listens on MASTER_PORT itself, for its own store, and says so; ranks then meet one port
 * further. */
static int find_port(struct mp_meeting *meeting, struct mp_error *error) {
    const char *store = variable("TORCHELASTIC_USE_AGENT_STORE");
    bool taken = store && !strcmp(store, "True");
    int port = 0, code = read_number("MASTER_PORT", 1, 65535 - taken, &port, error);
    snprintf(meeting->port, sizeof meeting->port, "%d", port + taken);
    meeting->port_name = taken ? "MASTER_PORT + 1, as torchrun has MASTER_PORT" : "MASTER_PORT";
    return code;
}

/* Where ranks that know their numbers meet. */
static int find_place(struct mp_meeting *meeting, struct mp_error *error) {
    static const char prefix[] = "file:";
    const char *given = variable("MOEPERF_RENDEZVOUS");
    if (given && strncmp(given, prefix, sizeof prefix - 1) != 0)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: MOEPERF_RENDEZVOUS=%s; it takes file:/PATH on a file system that "
                       "all ranks share",
                       meeting->rank, given);
    if (given) {
        meeting->path = given + sizeof prefix - 1;
        return MP_OK;
    }
    meeting->address = variable("MASTER_ADDR");
    if (meeting->address && variable("MASTER_PORT"))
        return find_port(meeting, error);
    return mp_fail(error, MP_EINVAL,
                   "rank %d of %d: nothing says where the ranks meet; set MASTER_ADDR and "
                   "MASTER_PORT, or MOEPERF_RENDEZVOUS=file:/PATH, or start them by mpirun",
                   meeting->rank, meeting->ranks);
}

int mp_meeting_find(const struct mp_nccl_settings *settings, struct mp_meeting *meeting,
                    struct mp_error *error) {
    *meeting = (struct mp_meeting){
        .ranks = 1,
        .comm = settings->bootstrap,
        .seconds = settings->meeting_s > 0 ? settings->meeting_s : DEFAULT_SECONDS,
    };
    if (settings->bootstrap) {
        meeting->rank = settings->bootstrap->rank;
        meeting->ranks = settings->bootstrap->ranks;
        return MP_OK;
    }
    if (!variable("RANK") && !variable("WORLD_SIZE"))
        return MP_OK;
    int code = read_number("WORLD_SIZE", 1, 1 << 20, &meeting->ranks, error);
    if (!code)
        code = read_number("RANK", 0, meeting->ranks - 1, &meeting->rank, error);
    if (!code && meeting->ranks > 1)
        code = find_place(meeting, error);
    return code;
}

int mp_card_check(const struct mp_meeting *meeting, const struct mp_card *card, const bool came[],
                  struct mp_error *error) {
    if (card->magic != MP_CARD_MAGIC || card->version != MP_CARD_VERSION)
        return mp_fail(error, MP_ECOMM, "rank %d: a rank of another version of this program came",
                       meeting->rank);
    if (card->ranks != meeting->ranks)
        return mp_fail(error, MP_ECOMM,
                       "rank %d was started as one of %d ranks (WORLD_SIZE), rank %d as one of %d",
                       card->rank, card->ranks, meeting->rank, meeting->ranks);
    if (card->rank < 0 || card->rank >= meeting->ranks || came[card->rank])
        return mp_fail(error, MP_ECOMM, "rank %d was started twice (RANK), on host %.127s too",
                       card->rank, card->host);
    return MP_OK;
}

void mp_meeting_missing(const struct mp_meeting *meeting, const bool came[], char *text,
                        size_t size) {
    enum { SHOWN = 8 };
    int missing = 0;
    size_t at = 0;
    *text = 0;
    for (int r = 0; r < meeting->ranks; r++) {
        if (came[r])
            continue;
        if (missing++ < SHOWN && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%d", at ? ", " : "rank ", r);
    }
    if (missing > SHOWN && at < size)
        snprintf(text + at, size - at, " and %d more", missing - SHOWN);
}

/* Over another comm every rank shows its card to all. */
static int by_comm(const struct mp_meeting *meeting, struct mp_card cards[],
                   struct mp_error *error) {
    int code = MP_OK;
    for (int r = 0; !code && r < meeting->ranks; r++)
        code = mp_comm_broadcast(meeting->comm, &cards[r], sizeof cards[r], r, error);
    return code;
}

int mp_meeting_hold(const struct mp_meeting *meeting, struct mp_card cards[],
                    struct mp_error *error) {
    if (meeting->ranks == 1)
        return MP_OK;
    if (meeting->comm)
        return by_comm(meeting, cards, error);
    return meeting->path ? mp_meeting_by_files(meeting, cards, error)
                         : mp_meeting_by_address(meeting, cards, error);
}
