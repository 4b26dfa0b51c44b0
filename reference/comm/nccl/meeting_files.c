/* Meeting by files on a shared file system, for places without a port to listen on.
 *
 *   PATH.call   rank 0's number of this run
 *   PATH.R      rank R's card, with the number of the run that it was called to
 *   PATH        the cards of all
 *
 * Files are written under another name and renamed, so that nobody reads half of one.  What earlier
 * runs left carries their numbers and is passed over: rank 0 takes cards with its own number only,
 * and the others take cards of all only if their own, with the number of this process, is there.
 * They take their card away then, and rank 0 clears up when the last is gone. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "profiler/record/record.h"
#include "reference/comm/nccl/meeting.h"

enum { LOOK_MS = 10 };

struct entry {
    uint64_t call;
    struct mp_card card;
};

static void card_name(const struct mp_meeting *meeting, int rank, char *name, size_t size) {
    snprintf(name, size, "%s.%d", meeting->path, rank);
}

static void call_name(const struct mp_meeting *meeting, char *name, size_t size) {
    snprintf(name, size, "%s.call", meeting->path);
}

static int write_file(const struct mp_meeting *meeting, const char *name, const void *memory,
                      size_t bytes, struct mp_error *error) {
    char other[PATH_MAX + 64];
    snprintf(other, sizeof other, "%s.%ld.part", name, (long)getpid());
    int file = open(other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = file >= 0 && write(file, memory, bytes) == (ssize_t)bytes && !fsync(file);
    int failed = errno;
    if (file >= 0 && close(file) && written) {
        failed = errno;
        written = false;
    }
    if (written && rename(other, name)) {
        failed = errno;
        written = false;
    }
    if (written)
        return MP_OK;
    unlink(other);
    return mp_fail(error, MP_EIO, "rank %d: %s (MOEPERF_RENDEZVOUS): %s", meeting->rank, name,
                   strerror(failed));
}

/* True if there is a file of exactly that size. */
static bool read_file(const char *name, void *memory, size_t bytes) {
    char beyond;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bool whole = read(file, memory, bytes) == (ssize_t)bytes && read(file, &beyond, 1) == 0;
    close(file);
    return whole;
}

static void look_again(void) {
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    nanosleep(&pause, NULL);
}

/* ---- rank 0 ---- */

static int look_for_cards(const struct mp_meeting *meeting, struct mp_card cards[], bool came[],
                          int *missing, struct mp_error *error) {
    int code = MP_OK;
    for (int r = 1; !code && r < meeting->ranks; r++) {
        char name[PATH_MAX];
        struct entry entry;
        card_name(meeting, r, name, sizeof name);
        if (came[r] || !read_file(name, &entry, sizeof entry) || entry.call != cards[0].nonce)
            continue;
        code = mp_card_check(meeting, &entry.card, came, error);
        cards[r] = entry.card;
        came[r] = true;
        --*missing;
    }
    return code;
}

/* A rank of a larger world would never be looked for: its file is. */
static int look_for_strangers(const struct mp_meeting *meeting, const struct mp_card *own,
                              const bool came[], struct mp_error *error) {
    char name[PATH_MAX];
    struct entry entry;
    card_name(meeting, meeting->ranks, name, sizeof name);
    if (!read_file(name, &entry, sizeof entry) || entry.call != own->nonce)
        return MP_OK;
    return mp_card_check(meeting, &entry.card, came, error);
}

static int wait_for_cards(const struct mp_meeting *meeting, struct mp_card cards[],
                          int64_t until_ns, struct mp_error *error) {
    char missing_ranks[128];
    int missing = meeting->ranks - 1, code = MP_OK;
    bool *came = calloc((size_t)meeting->ranks, sizeof *came);
    if (!came)
        return mp_fail(error, MP_ENOMEM, "no memory for a meeting");
    came[0] = true;
    while (!code && missing) {
        code = look_for_cards(meeting, cards, came, &missing, error);
        if (!code)
            code = look_for_strangers(meeting, &cards[0], came, error);
        if (!code && missing && mp_clock_ns() > until_ns) {
            mp_meeting_missing(meeting, came, missing_ranks, sizeof missing_ranks);
            code = mp_fail(error, MP_ECOMM,
                           "rank 0: it waited for %d s for files %s.*, and of %d ranks %s did not "
                           "come; are all started, with the same MOEPERF_RENDEZVOUS?",
                           meeting->seconds, meeting->path, meeting->ranks, missing_ranks);
        }
        if (!code && missing)
            look_again();
    }
    free(came);
    return code;
}

/* Who has the cards of all has taken its own away.  One that ended before that isn't waited for
 * longer than for the meeting. */
static void wait_for_readers(const struct mp_meeting *meeting, int64_t until_ns) {
    char name[PATH_MAX];
    for (int r = 1; r < meeting->ranks; r++) {
        card_name(meeting, r, name, sizeof name);
        while (access(name, F_OK) == 0 && mp_clock_ns() < until_ns)
            look_again();
    }
}

static int collect(const struct mp_meeting *meeting, struct mp_card cards[],
                   struct mp_error *error) {
    int64_t until_ns = mp_clock_ns() + (int64_t)meeting->seconds * 1000000000;
    char name[PATH_MAX];
    call_name(meeting, name, sizeof name);
    int code = write_file(meeting, name, &cards[0].nonce, sizeof cards[0].nonce, error);
    if (!code)
        code = wait_for_cards(meeting, cards, until_ns, error);
    if (!code)
        code = write_file(meeting, meeting->path, cards, (size_t)meeting->ranks * sizeof *cards,
                          error);
    if (!code)
        wait_for_readers(meeting, until_ns);
    unlink(meeting->path);
    unlink(name);
    return code;
}

/* ---- the others ---- */

static int attend(const struct mp_meeting *meeting, struct mp_card cards[],
                  struct mp_error *error) {
    int64_t until_ns = mp_clock_ns() + (int64_t)meeting->seconds * 1000000000;
    char called[PATH_MAX], own_name[PATH_MAX];
    uint64_t call = 0, answered = 0;
    const struct mp_card own = cards[meeting->rank];
    int code = MP_OK;
    call_name(meeting, called, sizeof called);
    card_name(meeting, meeting->rank, own_name, sizeof own_name);
    for (;;) {
        if (read_file(called, &call, sizeof call) && call != answered) {
            struct entry entry = {.call = call, .card = own};
            code = write_file(meeting, own_name, &entry, sizeof entry, error);
            answered = call;
        }
        if (!code && read_file(meeting->path, cards, (size_t)meeting->ranks * sizeof *cards) &&
            cards[0].nonce == answered && cards[meeting->rank].nonce == own.nonce)
            break;
        if (!code && mp_clock_ns() > until_ns)
            code = mp_fail(error, MP_ECOMM,
                           "rank %d: it waited for %d s for rank 0 at file %s "
                           "(MOEPERF_RENDEZVOUS); is every one of %d ranks started, and is the "
                           "file on a file system that all share?",
                           meeting->rank, meeting->seconds, meeting->path, meeting->ranks);
        if (code)
            break;
        look_again();
    }
    unlink(own_name);
    return code;
}

int mp_meeting_by_files(const struct mp_meeting *meeting, struct mp_card cards[],
                        struct mp_error *error) {
    if (strlen(meeting->path) + 32 > PATH_MAX)
        return mp_fail(error, MP_EINVAL, "rank %d: MOEPERF_RENDEZVOUS is too long a path",
                       meeting->rank);
    return meeting->rank == 0 ? collect(meeting, cards, error) : attend(meeting, cards, error);
}
