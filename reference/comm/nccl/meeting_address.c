/* Meeting at MASTER_ADDR:MASTER_PORT (or a port further, as meeting.c has it): rank 0 listens, the
 * others come with their cards, and when all are there each gets the cards of all. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "profiler/record/record.h"
#include "reference/comm/nccl/meeting.h"

enum { RETRY_MS = 50, CARD_SECONDS = 10 };

/* What comes before the cards: whether there are any. */
struct answer {
    uint32_t magic;
    int32_t code;
    char text[768];
};

struct reception {
    const struct mp_meeting *meeting;
    struct mp_card *cards;
    bool *came;      /* [ranks] */
    int *socket;     /* [ranks], -1: none */
    int listener[8]; /* one per address of the host */
    int listeners;
    int64_t until_ns;
};

static int64_t deadline(const struct mp_meeting *meeting) {
    return mp_clock_ns() + (int64_t)meeting->seconds * 1000000000;
}

/* Whole, or false. */
static bool put(int socket, const void *memory, size_t bytes) {
    const char *at = memory;
    while (bytes) {
        ssize_t done = send(socket, at, bytes, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

static bool get(int socket, void *memory, size_t bytes) {
    char *at = memory;
    while (bytes) {
        ssize_t done = recv(socket, at, bytes, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

static void limit_waits(int socket, int64_t nanoseconds) {
    if (nanoseconds < 1000000)
        nanoseconds = 1000000;
    struct timeval limit = {nanoseconds / 1000000000, nanoseconds % 1000000000 / 1000};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static int resolve(const struct mp_meeting *meeting, bool listens, struct addrinfo **found,
                   struct mp_error *error) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0};
    int failed = getaddrinfo(listens ? NULL : meeting->address, meeting->port, &hints, found);
    if (!failed)
        return MP_OK;
    return mp_fail(error, MP_EINVAL, "rank %d: MASTER_ADDR=%s, port %s: %s", meeting->rank,
                   meeting->address, meeting->port, gai_strerror(failed));
}

/* ---- rank 0 ---- */

static int listen_everywhere(struct reception *at, struct mp_error *error) {
    const struct mp_meeting *meeting = at->meeting;
    struct addrinfo *found = NULL;
    const int limit = (int)(sizeof at->listener / sizeof *at->listener), on = 1;
    int code = resolve(meeting, true, &found, error), failed = 0;
    for (struct addrinfo *a = found; a && at->listeners < limit; a = a->ai_next) {
        int listener = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (listener < 0)
            continue;
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (a->ai_family == AF_INET6)
            setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        if (bind(listener, a->ai_addr, a->ai_addrlen) || listen(listener, 1024)) {
            failed = errno;
            close(listener);
            continue;
        }
        at->listener[at->listeners++] = listener;
    }
    freeaddrinfo(found);
    if (!code && (!at->listeners || failed == EADDRINUSE))
        code = mp_fail(error, MP_ECOMM,
                       "rank 0: it can't listen on port %s (%s): %s; choose a free port, "
                       "or meet by MOEPERF_RENDEZVOUS=file:/PATH",
                       meeting->port, meeting->port_name, strerror(failed ? failed : errno));
    return code;
}

/* Reads the card of who has connected.  Whatever is no card of ours is sent away. */
static int receive_card(struct reception *at, int socket, struct mp_error *error) {
    struct mp_card card;
    int64_t left = at->until_ns - mp_clock_ns();
    limit_waits(socket, left < (int64_t)CARD_SECONDS * 1000000000
                            ? left
                            : CARD_SECONDS * INT64_C(1000000000));
    if (!get(socket, &card, sizeof card) || card.magic != MP_CARD_MAGIC) {
        close(socket);
        return MP_OK;
    }
    int code = mp_card_check(at->meeting, &card, at->came, error);
    if (code) {
        struct answer answer = {.magic = MP_CARD_MAGIC, .code = code};
        if (error)
            memcpy(answer.text, error->text, sizeof answer.text);
        put(socket, &answer, sizeof answer);
        close(socket);
        return code;
    }
    at->cards[card.rank] = card;
    at->came[card.rank] = true;
    at->socket[card.rank] = socket;
    return MP_OK;
}

static int wait_for_cards(struct reception *at, struct mp_error *error) {
    const struct mp_meeting *meeting = at->meeting;
    struct pollfd poller[sizeof at->listener / sizeof *at->listener];
    int come = 1, code = MP_OK;
    while (!code && come < meeting->ranks) {
        int64_t left = at->until_ns - mp_clock_ns();
        if (left <= 0) {
            char missing[128];
            mp_meeting_missing(meeting, at->came, missing, sizeof missing);
            return mp_fail(error, MP_ECOMM,
                           "rank 0: it waited for %d s on port %s, and of %d ranks %s did not "
                           "come; are all started, with the same MASTER_ADDR and MASTER_PORT?",
                           meeting->seconds, meeting->port, meeting->ranks, missing);
        }
        for (int i = 0; i < at->listeners; i++)
            poller[i] = (struct pollfd){.fd = at->listener[i], .events = POLLIN};
        if (poll(poller, (nfds_t)at->listeners, (int)(left / 1000000) + 1) <= 0)
            continue;
        for (int i = 0; !code && i < at->listeners; i++) {
            int socket = poller[i].revents ? accept4(poller[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
            if (socket >= 0)
                code = receive_card(at, socket, error);
        }
        come = 0;
        for (int r = 0; r < meeting->ranks; r++)
            come += at->came[r];
    }
    return code;
}

/* Everybody who has come gets the cards, or the reason why there are none. */
static void answer_all(const struct reception *at, int code, const struct mp_error *error) {
    struct answer answer = {.magic = MP_CARD_MAGIC, .code = code};
    if (code && error)
        memcpy(answer.text, error->text, sizeof answer.text);
    for (int r = 1; r < at->meeting->ranks; r++) {
        if (at->socket[r] < 0)
            continue;
        if (put(at->socket[r], &answer, sizeof answer) && !code)
            put(at->socket[r], at->cards, (size_t)at->meeting->ranks * sizeof *at->cards);
        close(at->socket[r]);
    }
}

static int receive_all(const struct mp_meeting *meeting, struct mp_card cards[],
                       struct mp_error *error) {
    const size_t ranks = (size_t)meeting->ranks;
    struct reception at = {.meeting = meeting,
                           .cards = cards,
                           .came = calloc(ranks, sizeof *at.came),
                           .socket = calloc(ranks, sizeof *at.socket),
                           .until_ns = deadline(meeting)};
    struct mp_error own = {0};
    int code = at.came && at.socket ? MP_OK : mp_fail(&own, MP_ENOMEM, "no memory for a meeting");
    for (size_t r = 0; !code && r < ranks; r++)
        at.socket[r] = -1;
    if (!code)
        code = listen_everywhere(&at, &own);
    if (!code) {
        at.came[0] = true;
        code = wait_for_cards(&at, &own);
        answer_all(&at, code, &own);
    }
    for (int i = 0; i < at.listeners; i++)
        close(at.listener[i]);
    free(at.came);
    free(at.socket);
    return code ? mp_fail(error, code, "%s", own.text) : MP_OK;
}

/* ---- the others ---- */

static int connect_once(const struct addrinfo *found) {
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        int to = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (to < 0)
            continue;
        if (!connect(to, a->ai_addr, a->ai_addrlen))
            return to;
        int failed = errno;
        close(to);
        errno = failed;
    }
    return -1;
}

/* Rank 0 may be started later than this one. */
static int reach(const struct mp_meeting *meeting, int64_t until_ns, int *socket,
                 struct mp_error *error) {
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000};
    struct addrinfo *found = NULL;
    int code = resolve(meeting, false, &found, error);
    *socket = -1;
    while (!code && (*socket = connect_once(found)) < 0) {
        if (mp_clock_ns() > until_ns)
            code = mp_fail(error, MP_ECOMM,
                           "rank %d: for %d s nobody answered at %s:%s (MASTER_ADDR, %s), "
                           "where rank 0 should listen: %s",
                           meeting->rank, meeting->seconds, meeting->address, meeting->port,
                           meeting->port_name, strerror(errno));
        else
            nanosleep(&pause, NULL);
    }
    freeaddrinfo(found);
    return code;
}

static int come(const struct mp_meeting *meeting, struct mp_card cards[], struct mp_error *error) {
    struct answer answer;
    int64_t until_ns = deadline(meeting);
    int socket, code = reach(meeting, until_ns, &socket, error);
    if (code)
        return code;
    /* Rank 0 gives up after the same time; its sentence says more than ours would. */
    limit_waits(socket, until_ns - mp_clock_ns() + (int64_t)CARD_SECONDS * 1000000000);
    if (!put(socket, &cards[meeting->rank], sizeof *cards) ||
        !get(socket, &answer, sizeof answer) || answer.magic != MP_CARD_MAGIC)
        code = mp_fail(error, MP_ECOMM,
                       "rank %d: who listens at %s:%s (MASTER_ADDR, %s) went away without "
                       "an answer; has rank 0 ended, or does another program use that port?",
                       meeting->rank, meeting->address, meeting->port, meeting->port_name);
    else if (answer.code)
        code = mp_fail(error, answer.code, "%.767s", answer.text);
    else if (!get(socket, cards, (size_t)meeting->ranks * sizeof *cards))
        code = mp_fail(error, MP_ECOMM, "rank %d: rank 0 went away while the ranks met",
                       meeting->rank);
    close(socket);
    return code;
}

int mp_meeting_by_address(const struct mp_meeting *meeting, struct mp_card cards[],
                          struct mp_error *error) {
    return meeting->rank == 0 ? receive_all(meeting, cards, error) : come(meeting, cards, error);
}
