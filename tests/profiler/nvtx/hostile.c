/* Programs that make it hard for a collector inside them: what each does is its first argument's.
 * Files that are theirs alone are named by HOSTILE_FILE. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

static void pairs(int number, const char *name) {
    for (int i = 0; i < number; i++) {
        nvtxRangePushA(name);
        nvtxRangePop();
    }
}

/* ---- descriptors ---- */

/* A child has them all, whatever the collector does after a fork. */
static int number_is_closed_in_a_child(int first, int last) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        for (int number = first; number <= last && !status; number++)
            status = fcntl(number, F_GETFD) < 0;
        _exit(status);
    }
    return waitpid(child, &status, 0) != child || status;
}

/* As a daemon does it: nothing inherited stays open, and the numbers are its own files' from here
 * on. */
static void take_all_numbers(void) {
    enum { FIRST = 3, LAST = 900, HIGHEST = 1100 };
    for (int number = FIRST; number <= HIGHEST; number++)
        close(number);
    int file = open(getenv("HOSTILE_FILE"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, "precious", 8) != 8)
        exit(4);
    for (int number = FIRST; number <= LAST; number++)
        dup2(file, number);
    if (number_is_closed_in_a_child(FIRST, LAST))
        exit(10);
}

static void closes(int number) {
    pairs(1, "before");
    take_all_numbers();
    pairs(number, "after");
}

static void daemonises(int number) {
    int status;
    pairs(1, "of the parent");
    pid_t child = fork();
    if (child == 0) {
        closes(number);
        exit(0);
    }
    if (waitpid(child, &status, 0) != child || status)
        exit(5);
}

/* ---- signals ---- */

static volatile sig_atomic_t armed, in_handler, handled;

/* In places where the collector is at work, a signal comes in every time. */
static void be_interrupted(void) {
    if (armed && !in_handler)
        raise(SIGUSR1);
}

/* In place of the C library's, which the collector calls. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    be_interrupted();
    return (int)syscall(SYS_clock_gettime, clock, now);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    be_interrupted();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* A handler may have interrupted malloc, so nothing that it calls may need it. */
static void refuse_in_handler(void) {
    if (in_handler)
        _exit(6);
}

void *__libc_malloc(size_t size);               // NOLINT(bugprone-reserved-identifier)
void *__libc_calloc(size_t count, size_t size); // NOLINT(bugprone-reserved-identifier)

void *malloc(size_t size) {
    refuse_in_handler();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    refuse_in_handler();
    return __libc_calloc(count, size);
}
#endif

static void on_signal(int signal) {
    char name[64];
    (void)signal;
    in_handler = 1;
    handled++;
    snprintf(name, sizeof name, "in handler %d", (int)handled);
    nvtxRangePushA(name);
    nvtxRangePop();
    in_handler = 0;
}

static void *be_a_handled_thread(void *unused) {
    raise(SIGUSR1); /* whose range is the thread's first */
    pairs(1, "of another thread");
    return unused;
}

static void handlers(int number) {
    struct sigaction action = {.sa_handler = on_signal};
    char name[64];
    pthread_t thread;
    nvtxDomainCreateA("loads the collector");
    sigaction(SIGUSR1, &action, NULL);
    alarm(20); /* it may hang */
    armed = 1;
    for (int i = 0; i < number; i++) {
        snprintf(name, sizeof name, "main %d", i);
        pairs(1, name);
    }
    pthread_create(&thread, NULL, be_a_handled_thread, NULL);
    pthread_join(thread, NULL);
    armed = 0;
    snprintf(name, sizeof name, "%d handled", (int)handled);
    nvtxMarkA(name);
}

/* ---- threads ---- */

static void *cancel_oneself(void *unused) {
    pthread_cancel(pthread_self());
    pairs(1, "of a thread that is cancelled");
    pthread_testcancel();
    return unused;
}

static void cancelled(int number) {
    alarm(20);
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, cancel_oneself, NULL);
        pthread_join(thread, NULL);
    }
    pairs(1, "afterwards");
}

static void *leave_a_range(void *unused) {
    nvtxRangePushA("left by a thread");
    return unused;
}

static void abandons(int number) {
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, leave_a_range, NULL);
        pthread_join(thread, NULL);
    }
}

enum { RECORDERS = 4 };
static _Atomic int made[RECORDERS];

/* Ranges whose parts belong together, one inside the other, and such as another thread may end. */
static void *record_for_ever(void *count) {
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .colorType = NVTX_COLOR_ARGB,
                                   .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII};
    event.message.ascii = "for ever";
    for (uint32_t i = 1;; i++) {
        event.category = i;
        event.color = ~i;
        event.payload.ullValue = i;
        nvtxRangePushEx(&event);
        nvtxRangeId_t id = nvtxRangeStartEx(&event);
        nvtxRangePushEx(&event);
        nvtxRangePop();
        nvtxRangeEnd(id);
        nvtxRangePop();
        atomic_store((_Atomic int *)count, (int)i);
    }
    return NULL;
}

static void leaves(int number) {
    for (int i = 0; i < RECORDERS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, record_for_ever, &made[i]);
        pthread_detach(thread);
    }
    for (int i = 0; i < RECORDERS; i++)
        while (atomic_load(&made[i]) < number)
            sched_yield();
}

/* ---- arguments ---- */

/* Pointers that nobody has given out, among them such as lie near those that were. */
static void handles(int number) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("a real one");
    nvtxEventAttributes_t event = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    uintptr_t wrong[] = {0x1234,
                         0xdeadbeef,
                         UINTPTR_MAX,
                         (uintptr_t)&event,
                         (uintptr_t)domain - 1,
                         (uintptr_t)domain + 1000,
                         (uintptr_t)domain + 2};
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain, "registered");
    for (int i = 0; i < number; i++) {
        nvtxDomainHandle_t invalid = (nvtxDomainHandle_t)wrong[i];
        nvtxDomainRangePushEx(invalid, &event);
        nvtxDomainRangePop(invalid);
    }
    event.message.registered = (nvtxStringHandle_t)wrong[1];
    nvtxDomainMarkEx(domain, &event);
    if (nvtxPayloadSchemaRegister(domain, NULL) || nvtxPayloadEnumRegister(domain, NULL))
        exit(7);
    nvtxRangePopPayload(domain, NULL, 3);
    nvtxMarkPayload(domain, NULL, 3);
}

/* KiB of memory that the process has written to, but for what it shares; with sanitizers, which
 * keep some bytes about each one, nothing is to be learnt from it. */
static long own_memory(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    long pages = 0, resident = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &pages, &resident, &shared) != 3)
        exit(8);
    fclose(file);
    return (resident - shared) * 4;
#endif
}

static void names(int number) {
    enum { LENGTH = 4000, MOST_KIB = 20 << 10 };
    static char name[LENGTH + 1];
    memset(name, 'n', LENGTH);
    long before = own_memory();
    for (int i = 0; i < number; i++) {
        int digits = snprintf(name, sizeof name, "%d", i);
        name[digits] = '-';
        nvtxRangePushA(name);
        nvtxRangePop();
    }
    if (own_memory() - before > MOST_KIB)
        exit(9);
}

static void vanishes(int number) {
    pairs(number, "never written");
    _exit(0);
}

static const struct {
    const char *name;
    void (*play)(int number);
} scenes[] = {{"closes", closes},       {"daemonises", daemonises}, {"handlers", handlers},
              {"cancelled", cancelled}, {"abandons", abandons},     {"leaves", leaves},
              {"handles", handles},     {"names", names},           {"vanishes", vanishes}};

int main(int argc, char *argv[]) {
    for (size_t i = 0; argc > 2 && i < sizeof scenes / sizeof *scenes; i++)
        if (!strcmp(argv[1], scenes[i].name)) {
            scenes[i].play(atoi(argv[2]));
            return 0;
        }
    return 2;
}
