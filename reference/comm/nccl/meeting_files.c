/* Meeting by files in a folder of the user's:
 *
 *   NAME.call      rank 0's number of this run
 *   NAME.R         rank R's card
 *   NAME.cards     the cards of all, or
 *   NAME.refusal   why they can't meet
 *
 * Files are written under another name and renamed, so that nobody reads half of one.  All of them
 * begin with the number of rank 0's call, by which what earlier runs left is passed over: rank 0
 * takes cards that answer its own call only, and the others take cards of all only if their own,
 * with the number of this process, is there.  They take their card away then, and rank 0 clears up
 * when the last is gone.
 *
 * Folder and files must belong to the user, and nobody else may write to them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "profiler/record/record.h"
#include "reference/comm/nccl/meeting.h"

enum {
    LOOK_MS = 10,
    LEAST_LOOKS = 10, /* that a refusal lies there */
    GRACE_S = 2,      /* for the others to read it */
    PATH_SIZE = sizeof((struct mp_meeting *)0)->folder + sizeof((struct mp_meeting *)0)->name + 32
};

/* What every file begins with. */
struct head {
    uint32_t magic, version;
    uint64_t call; /* nonce of rank 0's card */
};

struct entry {
    struct head head;
    struct mp_card card;
};

struct refusal {
    struct head head;
    int32_t code;
    char text[768];
};

static struct head head_of(uint64_t call) {
    return (struct head){MP_MEETING_MAGIC, MP_MEETING_VERSION, call};
}

static void path_of(const struct mp_meeting *meeting, const char *part, char path[PATH_SIZE]) {
    snprintf(path, PATH_SIZE, "%s/%s.%s", meeting->folder, meeting->name, part);
}

static void card_path(const struct mp_meeting *meeting, int rank, char path[PATH_SIZE]) {
    char part[16];
    snprintf(part, sizeof part, "%d", rank);
    path_of(meeting, part, path);
}

static int64_t seconds_from_now(int seconds) {
    return mp_clock_ns() + (int64_t)seconds * 1000000000;
}

static void look_again(void) {
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    nanosleep(&pause, NULL);
}

/* ---- whose is it ---- */

/* MP_OK if nobody but this user can have written what is there. */
static int check_owner(const struct mp_meeting *meeting, const char *path,
                       const struct stat *status, struct mp_error *error) {
    if (status->st_uid != geteuid())
        return mp_fail(error, MP_EINVAL,
                       "rank %d: %s, where ranks meet, belongs to user %u, not to user %u who runs "
                       "this; remove it, or set MOEPERF_RENDEZVOUS=file:/FOLDER to your own",
                       meeting->rank, path, (unsigned)status->st_uid, (unsigned)geteuid());
    if (status->st_mode & (S_IWGRP | S_IWOTH))
        return mp_fail(error, MP_EINVAL,
                       "rank %d: others may write to %s, where ranks meet (mode %03o); take that "
                       "away: chmod go-w",
                       meeting->rank, path, (unsigned)status->st_mode & 0777);
    return MP_OK;
}

/* Makes the folder if it isn't there. */
static int open_folder(const struct mp_meeting *meeting, struct mp_error *error) {
    struct stat status;
    if ((mkdir(meeting->folder, 0700) && errno != EEXIST) || lstat(meeting->folder, &status))
        return mp_fail(error, MP_EIO, "rank %d: folder %s, where ranks meet: %s", meeting->rank,
                       meeting->folder, strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return mp_fail(error, MP_EINVAL, "rank %d: %s, where ranks meet, is no folder",
                       meeting->rank, meeting->folder);
    return check_owner(meeting, meeting->folder, &status, error);
}

/* ---- files ---- */

/* For this user alone (0600), and over whatever lies there: a link is replaced, not followed, as
 * whole_file.h would, since it may be from a time when others could write to the folder. */
static int write_file(const struct mp_meeting *meeting, const char *path, const void *memory,
                      size_t bytes, struct mp_error *error) {
    char other[PATH_SIZE + 8];
    snprintf(other, sizeof other, "%s.XXXXXX", path);
    int file = mkostemp(other, O_CLOEXEC), failed = 0;
    ssize_t written = file < 0 ? -1 : write(file, memory, bytes);
    if (written != (ssize_t)bytes || fsync(file))
        failed = written >= 0 && written < (ssize_t)bytes ? ENOSPC : errno;
    if (file >= 0 && close(file) && !failed)
        failed = errno;
    if (!failed && rename(other, path))
        failed = errno;
    if (!failed)
        return MP_OK;
    if (file >= 0)
        unlink(other);
    return mp_fail(error, MP_EIO, "rank %d: %s, by which ranks meet: %s", meeting->rank, path,
                   strerror(failed));
}

/* Of an open file: its first bytes, and whether they are all of it. */
static int read_open(const struct mp_meeting *meeting, const char *path, int file, void *memory,
                     size_t bytes, bool *whole, struct mp_error *error) {
    struct stat status;
    if (fstat(file, &status))
        return mp_fail(error, MP_EIO, "rank %d: %s, by which ranks meet: %s", meeting->rank, path,
                       strerror(errno));
    if (!S_ISREG(status.st_mode))
        return mp_fail(error, MP_EINVAL, "rank %d: %s, by which ranks meet, is no file",
                       meeting->rank, path);
    int code = check_owner(meeting, path, &status, error);
    *whole = !code && read(file, memory, bytes) == (ssize_t)bytes && status.st_size == (off_t)bytes;
    return code;
}

/* 1: the file that answers this call (0: any) is in `memory`; 0: there is none, or one of another
 * run.  memory [bytes] begins with a head and is zeroed before. */
static int read_file(const struct mp_meeting *meeting, const char *path, uint64_t call,
                     void *memory, size_t bytes, struct mp_error *error) {
    struct head head = {0};
    bool whole = false;
    memset(memory, 0, bytes);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0 && (errno == ENOENT || errno == ESTALE))
        return 0;
    if (file < 0)
        return mp_fail(error, MP_EINVAL, "rank %d: %s, by which ranks meet: %s", meeting->rank,
                       path, errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    int code = read_open(meeting, path, file, memory, bytes, &whole, error);
    close(file);
    if (code)
        return code;
    memcpy(&head, memory, sizeof head);
    if (head.magic != MP_MEETING_MAGIC || (call && head.call != call))
        return 0;
    if (whole && head.version == MP_MEETING_VERSION)
        return 1;
    if (!call) /* who answers it says more */
        return 0;
    return mp_fail(error, MP_ECOMM,
                   "rank %d: %s is damaged, or a rank of another version of this program wrote it",
                   meeting->rank, path);
}

/* ---- cards ---- */

static bool is_text(const char *text, size_t size) {
    return memchr(text, 0, size) != NULL;
}

/* Whether `card` is that rank's, of a world of this size. */
static int check_card(const struct mp_meeting *meeting, const struct mp_card *card, int rank,
                      struct mp_error *error) {
    if (card->rank != rank || !card->nonce || !is_text(card->gpu, sizeof card->gpu) ||
        !is_text(card->host, sizeof card->host) || !is_text(card->failure, sizeof card->failure))
        return mp_fail(error, MP_ECOMM, "rank %d: the card of rank %d is damaged", meeting->rank,
                       rank);
    if (card->ranks != meeting->ranks)
        return mp_fail(error, MP_ECOMM,
                       "rank %d was started as one of %d ranks (WORLD_SIZE), rank %d as one of %d",
                       card->rank, card->ranks, meeting->rank, meeting->ranks);
    return MP_OK;
}

static int started_twice(const struct mp_card *card, struct mp_error *error) {
    return mp_fail(error, MP_ECOMM, "rank %d was started twice (RANK), on host %s too", card->rank,
                   card->host);
}

/* "ranks 2, 3 and 7 more": those that have not come. */
static int name_missing(const struct mp_meeting *meeting, const struct mp_card cards[],
                        struct mp_error *error) {
    enum { SHOWN = 8 };
    char names[128], more[32] = "";
    int missing = 0, at = 0;
    for (int r = 1; r < meeting->ranks; r++) {
        if (cards[r].nonce)
            continue;
        if (missing++ < SHOWN)
            at += snprintf(names + at, sizeof names - (size_t)at, "%s%d", at ? ", " : "", r);
    }
    if (missing > SHOWN)
        snprintf(more, sizeof more, " and %d more", missing - SHOWN);
    return mp_fail(error, MP_ECOMM,
                   "rank 0: it waited for %d s for files %s/%s.*, and of %d ranks %s %s%s did not "
                   "come; are all started, with the same %s?",
                   meeting->seconds, meeting->folder, meeting->name, meeting->ranks,
                   missing > 1 ? "ranks" : "rank", names, more,
                   getenv("MOEPERF_RENDEZVOUS") ? "MOEPERF_RENDEZVOUS" : "MASTER_PORT");
}

/* ---- rank 0 ---- */

/* Takes the card of a rank, or of one beyond the world's size: a rank of a larger world would never
 * be looked for, but its file is. */
static int take_card(const struct mp_meeting *meeting, int rank, struct mp_card cards[],
                     int *missing, struct mp_error *error) {
    char path[PATH_SIZE];
    struct entry entry;
    card_path(meeting, rank, path);
    int got = read_file(meeting, path, cards[0].nonce, &entry, sizeof entry, error);
    MP_TRY(got > 0 ? check_card(meeting, &entry.card, rank, error) : got);
    if (got == 0 || rank == meeting->ranks || cards[rank].nonce == entry.card.nonce)
        return MP_OK;
    if (cards[rank].nonce)
        return started_twice(&entry.card, error);
    cards[rank] = entry.card;
    --*missing;
    return MP_OK;
}

static int look_for_cards(const struct mp_meeting *meeting, struct mp_card cards[], int *missing,
                          struct mp_error *error) {
    for (int r = 1; r <= meeting->ranks; r++)
        MP_TRY(take_card(meeting, r, cards, missing, error));
    return MP_OK;
}

/* Who calls after this rank has taken its place. */
static int look_for_another_call(const struct mp_meeting *meeting, const char *called,
                                 const struct mp_card *own, struct mp_error *error) {
    struct head head;
    int got = read_file(meeting, called, 0, &head, sizeof head, error);
    if (got <= 0 || head.call == own->nonce)
        return got < 0 ? got : MP_OK;
    return mp_fail(error, MP_ECOMM,
                   "rank 0 was started twice (RANK), or another run meets by files %s/%s.*, too",
                   meeting->folder, meeting->name);
}

static int wait_for_cards(const struct mp_meeting *meeting, const char *called,
                          struct mp_card cards[], int64_t until_ns, struct mp_error *error) {
    int missing = meeting->ranks - 1;
    for (;;) {
        int code = look_for_cards(meeting, cards, &missing, error);
        if (!code)
            code = look_for_another_call(meeting, called, &cards[0], error);
        if (code || !missing)
            return code;
        if (mp_clock_ns() > until_ns)
            return name_missing(meeting, cards, error);
        look_again();
    }
}

/* Who has read what there is has taken its card away.  One that ended before that isn't waited for
 * longer than `until_ns`. */
static void wait_for_readers(const struct mp_meeting *meeting, int64_t until_ns) {
    char path[PATH_SIZE];
    for (int r = 1; r < meeting->ranks; r++) {
        card_path(meeting, r, path);
        while (access(path, F_OK) == 0 && mp_clock_ns() < until_ns)
            look_again();
    }
}

static int write_cards(const struct mp_meeting *meeting, const char *path,
                       const struct mp_card cards[], struct mp_error *error) {
    const struct head head = head_of(cards[0].nonce);
    const size_t bytes = (size_t)meeting->ranks * sizeof *cards;
    char *memory = malloc(sizeof head + bytes);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory for a meeting");
    memcpy(memory, &head, sizeof head);
    memcpy(memory + sizeof head, cards, bytes);
    int code = write_file(meeting, path, memory, sizeof head + bytes, error);
    free(memory);
    return code;
}

static void refuse(const struct mp_meeting *meeting, const char *path, uint64_t call,
                   const struct mp_error *why) {
    struct refusal refusal = {.head = head_of(call), .code = why->code};
    snprintf(refusal.text, sizeof refusal.text, "%s", why->text);
    if (!write_file(meeting, path, &refusal, sizeof refusal, NULL)) {
        for (int i = 0; i < LEAST_LOOKS;
             i++) /* one of two ranks of a number takes their card away */
            look_again();
        wait_for_readers(meeting, seconds_from_now(GRACE_S));
    }
    unlink(path);
}

static int collect(const struct mp_meeting *meeting, struct mp_card cards[],
                   struct mp_error *error) {
    const int64_t until_ns = seconds_from_now(meeting->seconds);
    const struct head call = head_of(cards[0].nonce);
    char called[PATH_SIZE], all[PATH_SIZE], refused[PATH_SIZE];
    struct mp_error own = {0};
    path_of(meeting, "call", called);
    path_of(meeting, "cards", all);
    path_of(meeting, "refusal", refused);
    int code = write_file(meeting, called, &call, sizeof call, &own);
    if (!code)
        code = wait_for_cards(meeting, called, cards, until_ns, &own);
    if (!code)
        code = write_cards(meeting, all, cards, &own);
    if (code)
        refuse(meeting, refused, cards[0].nonce, &own);
    else
        wait_for_readers(meeting, until_ns);
    unlink(all);
    unlink(called);
    return code ? mp_fail(error, code, "%s", own.text) : MP_OK;
}

/* ---- the others ---- */

/* Its card lies there, in answer to this call.  If another process shows one in its place, both do
 * so again and again, which rank 0 sees. */
static int show_card(const struct mp_meeting *meeting, const char *path, uint64_t call,
                     const struct mp_card *own, struct mp_error *error) {
    struct entry entry;
    int got = read_file(meeting, path, call, &entry, sizeof entry, error);
    if (got < 0 || (got > 0 && entry.card.nonce == own->nonce))
        return got < 0 ? got : MP_OK;
    entry = (struct entry){.head = head_of(call), .card = *own};
    return write_file(meeting, path, &entry, sizeof entry, error);
}

/* 1: the cards of all are there, and this process's among them. */
static int read_cards(const struct mp_meeting *meeting, uint64_t call, const struct mp_card *own,
                      struct mp_card cards[], struct mp_error *error) {
    const size_t bytes = (size_t)meeting->ranks * sizeof *cards;
    char path[PATH_SIZE], *memory = malloc(sizeof(struct head) + bytes);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory for a meeting");
    path_of(meeting, "cards", path);
    int got = read_file(meeting, path, call, memory, sizeof(struct head) + bytes, error);
    memcpy(cards, memory + sizeof(struct head), bytes);
    free(memory);
    for (int r = 0; got > 0 && r < meeting->ranks; r++) {
        int code = check_card(meeting, &cards[r], r, error);
        got = code ? code : 1;
    }
    if (got > 0 && cards[own->rank].nonce != own->nonce)
        return started_twice(&cards[own->rank], error);
    return got;
}

static int read_refusal(const struct mp_meeting *meeting, uint64_t call, struct mp_error *error) {
    char path[PATH_SIZE];
    struct refusal refusal;
    path_of(meeting, "refusal", path);
    int got = read_file(meeting, path, call, &refusal, sizeof refusal, error);
    if (got <= 0)
        return got;
    refusal.text[sizeof refusal.text - 1] = 0;
    return mp_fail(error, refusal.code < 0 ? refusal.code : MP_ECOMM, "%s", refusal.text);
}

/* One of the others. */
struct guest {
    const struct mp_meeting *meeting;
    struct mp_card own, *cards;
    char called[PATH_SIZE], own_path[PATH_SIZE];
    uint64_t call;    /* 0: none so far */
    int64_t heard_ns; /* when it was last there */
};

/* Looks once.  1: the cards of all are there; 0: not yet. */
static int attend_once(struct guest *guest, struct mp_error *error) {
    struct head head;
    int got = read_file(guest->meeting, guest->called, 0, &head, sizeof head, error);
    if (got <= 0)
        return got;
    guest->call = head.call;
    guest->heard_ns = mp_clock_ns();
    MP_TRY(show_card(guest->meeting, guest->own_path, head.call, &guest->own, error));
    MP_TRY(read_refusal(guest->meeting, head.call, error));
    return read_cards(guest->meeting, head.call, &guest->own, guest->cards, error);
}

/* MP_ECOMM once there is no more sense in waiting. */
static int check_patience(const struct guest *guest, int64_t until_ns, struct mp_error *error) {
    const struct mp_meeting *meeting = guest->meeting;
    const int64_t now_ns = mp_clock_ns(), grace_ns = (int64_t)GRACE_S * 1000000000;
    if (guest->call && now_ns > guest->heard_ns + grace_ns)
        return mp_fail(error, MP_ECOMM, "rank %d: rank 0 went away while the ranks met",
                       meeting->rank);
    /* Rank 0 gives up after the same time; its sentence says more than ours would. */
    if (now_ns > until_ns + (guest->call ? grace_ns : 0))
        return mp_fail(error, MP_ECOMM,
                       "rank %d: it waited for %d s for rank 0 at files %s/%s.*; is every one of "
                       "%d ranks started, and is the folder one that all share?",
                       meeting->rank, meeting->seconds, meeting->folder, meeting->name,
                       meeting->ranks);
    return MP_OK;
}

static int attend(const struct mp_meeting *meeting, struct mp_card cards[],
                  struct mp_error *error) {
    const int64_t until_ns = seconds_from_now(meeting->seconds);
    struct guest guest = {.meeting = meeting, .own = cards[meeting->rank], .cards = cards};
    int got;
    path_of(meeting, "call", guest.called);
    card_path(meeting, meeting->rank, guest.own_path);
    while ((got = attend_once(&guest, error)) == 0) {
        got = check_patience(&guest, until_ns, error);
        if (got)
            break;
        look_again();
    }
    unlink(guest.own_path);
    return got < 0 ? got : MP_OK;
}

int mp_meeting_by_files(const struct mp_meeting *meeting, struct mp_card cards[],
                        struct mp_error *error) {
    MP_TRY(open_folder(meeting, error));
    return meeting->rank == 0 ? collect(meeting, cards, error) : attend(meeting, cards, error);
}
