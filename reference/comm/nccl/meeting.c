#include "reference/comm/nccl/meeting.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference/base/characters.h"

enum { DEFAULT_SECONDS = 120 };

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int read_number(const char *name, int least, int most, int *value, struct mp_error *error) {
    const char *text = variable(name);
    int64_t number;
    if (!text || !mp_whole_number(text, least, most, &number))
        return mp_fail(error, MP_EINVAL, "%s=%s in the environment; it takes a number %d .. %d",
                       name, text ? text : "", least, most);
    *value = (int)number;
    return MP_OK;
}

static int set_folder(struct mp_meeting *meeting, const char *folder, const char *name,
                      struct mp_error *error) {
    int length = snprintf(meeting->folder, sizeof meeting->folder, "%s", folder);
    snprintf(meeting->name, sizeof meeting->name, "%s", name);
    if (length < (int)sizeof meeting->folder)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "rank %d: the folder where the ranks meet has a name of %d bytes; at most %zu "
                   "are possible",
                   meeting->rank, length, sizeof meeting->folder - 1);
}

/* A folder of the user's on this host.  Its files are named so that two runs at a time have names
 * of their own: torchrun listens on its MASTER_PORT. */
static int find_own_folder(struct mp_meeting *meeting, struct mp_error *error) {
    const char *temporary = variable("TMPDIR"), *run = variable("TORCHELASTIC_RUN_ID");
    char folder[sizeof meeting->folder + 64], name[sizeof meeting->name];
    int port = 0, code = read_number("MASTER_PORT", 1, 65535, &port, error);
    snprintf(folder, sizeof folder, "%.1023s/moeperf-%u", temporary ? temporary : "/tmp",
             (unsigned)geteuid());
    snprintf(name, sizeof name, "%d-%.64s", port, run ? run : "none");
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '-')
            *at = '_';
    return code ? code : set_folder(meeting, folder, name, error);
}

/* Where ranks that know their numbers meet. */
static int find_place(struct mp_meeting *meeting, struct mp_error *error) {
    static const char prefix[] = "file:";
    const char *given = variable("MOEPERF_RENDEZVOUS"), *local = variable("LOCAL_WORLD_SIZE");
    int here = 0;
    if (given &&
        (strncmp(given, prefix, sizeof prefix - 1) != 0 || given[sizeof prefix - 1] != '/'))
        return mp_fail(error, MP_EINVAL,
                       "rank %d: MOEPERF_RENDEZVOUS=%s; it takes file:/FOLDER on a file system "
                       "that all ranks share",
                       meeting->rank, given);
    if (given)
        return set_folder(meeting, given + sizeof prefix - 1, "meeting", error);
    if (!local)
        return mp_fail(error, MP_EINVAL,
                       "rank %d of %d: nothing says where the ranks meet: set MASTER_PORT and "
                       "LOCAL_WORLD_SIZE=%d if all are on this host, as torchrun does, or "
                       "MOEPERF_RENDEZVOUS=file:/FOLDER on a file system that all share, or start "
                       "them by mpirun",
                       meeting->rank, meeting->ranks, meeting->ranks);
    MP_TRY(read_number("LOCAL_WORLD_SIZE", 1, meeting->ranks, &here, error));
    if (here < meeting->ranks)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: %d of %d ranks are on this host (LOCAL_WORLD_SIZE); ranks on "
                       "several hosts need MOEPERF_RENDEZVOUS=file:/FOLDER on a file system that "
                       "all share, or mpirun to start them",
                       meeting->rank, here, meeting->ranks);
    return find_own_folder(meeting, error);
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
    MP_TRY(read_number("WORLD_SIZE", 1, 1 << 20, &meeting->ranks, error));
    MP_TRY(read_number("RANK", 0, meeting->ranks - 1, &meeting->rank, error));
    if (meeting->ranks > 1)
        MP_TRY(find_place(meeting, error));
    return MP_OK;
}

/* Over another comm every rank shows its card to all. */
static int by_comm(const struct mp_meeting *meeting, struct mp_card cards[],
                   struct mp_error *error) {
    for (int r = 0; r < meeting->ranks; r++)
        MP_TRY(mp_comm_broadcast(meeting->comm, &cards[r], sizeof cards[r], r, error));
    return MP_OK;
}

int mp_meeting_hold(const struct mp_meeting *meeting, struct mp_card cards[],
                    struct mp_error *error) {
    if (meeting->ranks == 1)
        return MP_OK;
    return meeting->comm ? by_comm(meeting, cards, error)
                         : mp_meeting_by_files(meeting, cards, error);
}
