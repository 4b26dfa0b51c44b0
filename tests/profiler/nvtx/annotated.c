/* A program with annotations, as somebody else would write one: it knows nothing of moeperf.
 *
 *     annotated SCENE [NUMBER]
 *
 * What each scene does is asserted on by collector_test.c. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include "tests/profiler/nvtx/pairs.h"

struct step {
    int64_t iteration, layer, tokens, bytes;
};

static nvtxEventAttributes_t ascii(const char *message) {
    nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                        .messageType = NVTX_MESSAGE_TYPE_ASCII};
    attributes.message.ascii = message;
    return attributes;
}

static void spend(int microseconds) {
    struct timespec pause = {.tv_nsec = microseconds * 1000L};
    nanosleep(&pause, NULL);
}

/* Levels as NVTX promises them; exits with 3 if they are not. */
static void expect(int got, int wanted, const char *what) {
    if (got == wanted)
        return;
    fprintf(stderr, "%s: %d, and %d was expected\n", what, got, wanted);
    exit(3);
}

static void plain(int number) {
    (void)number;
    expect(nvtxRangePushA("outer"), 0, "first level");
    spend(200);
    expect(nvtxRangePushA("inner"), 1, "second level");
    spend(100);
    expect(nvtxRangePop(), 1, "the inner one ends");
    expect(nvtxRangePop(), 0, "the outer one ends");
    nvtxMarkA("a mark");
    nvtxRangeId_t id = nvtxRangeStartA("long");
    expect(nvtxRangePushW(L"wide \u00e9\U0001F600"), 0, "wide");
    nvtxRangePop();
    nvtxRangeEnd(id);
}

/* Two domains of one name are one; a NULL domain is the default one; levels are per domain. */
static void domains(int number) {
    (void)number;
    nvtxDomainHandle_t one = nvtxDomainCreateA("twice"), two = nvtxDomainCreateA("twice");
    nvtxEventAttributes_t event = ascii("in a domain");
    event.category = 7;
    event.colorType = NVTX_COLOR_ARGB;
    event.color = 0xFF112233;
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = -42;
    nvtxDomainNameCategoryA(one, 7, "seventh");
    expect(nvtxDomainRangePushEx(one, &event), 0, "a domain's first level");
    expect(nvtxDomainRangePushEx(NULL, &event), 0, "the default domain's first level");
    expect(nvtxDomainRangePushEx(two, &event), 1, "the same domain's second level");
    expect(nvtxDomainRangePop(one), 1, "ends the second");
    expect(nvtxDomainRangePop(two), 0, "ends the first, from under the default domain's");
    expect(nvtxRangePop(), 0, "ends the default domain's");
    nvtxDomainDestroy(one);
}

/* The ranges that standard input tells, one a line: "+NAME" or "+DOMAIN|NAME" begins one, "-" or
 * "-DOMAIN" ends it, "=MICROSECONDS" passes. */
static void told(int number) {
    char line[1024];
    (void)number;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        char *bar = strchr(line, '|'), *name = bar ? bar + 1 : line + 1;
        if (bar)
            *bar = '\0';
        const bool has_domain = (*line == '-' || bar) && line[1];
        nvtxDomainHandle_t domain = NULL;
        if (*line != '=' && has_domain)
            domain = nvtxDomainCreateA(line + 1);
        const nvtxEventAttributes_t event = ascii(name);
        if (*line == '=')
            spend(atoi(name));
        else if (*line == '+')
            nvtxDomainRangePushEx(domain, &event);
        else
            nvtxDomainRangePop(domain);
    }
}

static uint64_t registered(nvtxDomainHandle_t domain, const nvtxPayloadSchemaEntry_t *entries,
                           size_t count, size_t size) {
    const nvtxPayloadSchemaAttr_t schema = {
        .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
        .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
        .entries = entries,
        .numEntries = count,
        .payloadStaticSize = size};
    return nvtxPayloadSchemaRegister(domain, &schema);
}

static uint64_t step_schema(nvtxDomainHandle_t domain) {
    static const nvtxPayloadSchemaEntry_t entries[] = {
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "iteration", NULL, 0, 0, NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "layer", NULL, 0, 0, NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "tokens", NULL, 0, 0, NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "bytes", NULL, 0, 0, NULL, NULL}};
    return registered(domain, entries, 4, sizeof(struct step));
}

static void payloads(int number) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("with payloads");
    uint64_t id = step_schema(domain);
    for (int i = 0; i < number; i++) {
        nvtxEventAttributes_t whole = ascii("iteration");
        nvtxDomainRangePushEx(domain, &whole);
        for (int layer = 0; layer < 2; layer++) {
            struct step step = {i, layer, 100 + layer, 4096};
            nvtxPayloadData_t data = {id, sizeof step, &step};
            nvtxEventAttributes_t event = ascii("experts");
            nvtxDomainRangePushEx(domain, &event);
            spend(50);
            expect(nvtxRangePopPayload(domain, &data, 1), 1, "a pop with a payload");
        }
        nvtxDomainRangePop(domain);
    }
}

struct place {
    int32_t node;
    double share;
};

struct transfer {
    char kind;
    struct place from;
    uint32_t sizes[3];
    struct place to[2];
    const char *reason;
    int64_t last;
};

/* Schemas inside schemas, arrays of numbers and of schemas, and a pointer. */
static void nested(int number) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("nested");
    const nvtxPayloadSchemaEntry_t place[] = {
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "node", NULL, 0, 0, NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, "share", NULL, 0, 0, NULL, NULL}};
    uint64_t places = registered(domain, place, 2, sizeof(struct place));
    const nvtxPayloadSchemaEntry_t transfer[] = {
        {0, NVTX_PAYLOAD_ENTRY_TYPE_CHAR, "kind", NULL, 0, 0, NULL, NULL},
        {0, places, "from", NULL, 0, 0, NULL, NULL},
        {NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE, NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "sizes", NULL, 3,
         0, NULL, NULL},
        {NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE, places, "to", NULL, 2, 0, NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, "reason", NULL, 0, 0, NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "last", NULL, 0, 0, NULL, NULL}};
    uint64_t id = registered(domain, transfer, 6, sizeof(struct transfer));
    for (int i = 0; i < number; i++) {
        struct transfer own = {1, {i, 0.5}, {10, 20, 30}, {{4, 1}, {5, 2}}, "a reason", 100 + i};
        nvtxPayloadData_t data = {id, sizeof own, &own};
        nvtxEventAttributes_t event = ascii("transfer");
        nvtxDomainRangePushEx(domain, &event);
        nvtxRangePopPayload(domain, &data, 1);
    }
}

static void wrong(int number) {
    for (int i = 0; i < number; i++)
        expect(nvtxRangePop() < 0, 1, "a pop without a push is an error");
    nvtxRangeEnd(123456789);
    nvtxRangePushA("left open");
    nvtxRangePushA("left open, inner");
    nvtxRangeStartA("never ended");
}

static void bytes(int number) {
    unsigned char name[256];
    for (int i = 0; i < 255; i++)
        name[i] = (unsigned char)(i + 1);
    name[255] = 0;
    nvtxRangePushA((const char *)name);
    nvtxRangePop();
    nvtxRangePushA("<script>alert('\"')</script>");
    nvtxRangePop();
    nvtxRangePushA(NULL);
    nvtxRangePop();
    for (int i = 0; i < number; i++) {
        snprintf((char *)name, sizeof name, "name %d", i);
        nvtxRangePushA((const char *)name);
        nvtxRangePop();
    }
}

static pthread_barrier_t together;

static void *one_thread(void *context) {
    int number = *(const int *)context;
    pthread_barrier_wait(&together);
    for (int i = 0; i < number; i++) {
        nvtxRangePushA("of a thread");
        nvtxRangePop();
    }
    first_object_ranges(number);
    second_object_ranges(number);
    return NULL;
}

enum { THREADS = 16 };

/* The first calls of all threads and all three objects come at the same moment. */
static void threads(int number) {
    pthread_t thread[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, one_thread, &number);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

/* Many threads, one after the other: their buffers are used again. */
static void generations(int number) {
    int ranges = 10;
    pthread_barrier_init(&together, NULL, 1);
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, one_thread, &ranges);
        pthread_join(thread, NULL);
    }
}

static void *end_it(void *id) {
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return NULL;
}

static void crossing(int number) {
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        nvtxEventAttributes_t event = ascii("crossing");
        nvtxRangeId_t id = nvtxDomainRangeStartEx(nvtxDomainCreateA("begins here"), &event);
        pthread_create(&thread, NULL, end_it, &id);
        pthread_join(thread, NULL);
    }
}

/* Starters begin ranges that enders end, all at the same time, in another order; the payload at the
 * end is that of the start. */
enum { STARTERS = 4, ENDERS = 3, IN_FLIGHT = 256 };

static struct flight {
    struct step step;
    nvtxRangeId_t id;
} flights[STARTERS * IN_FLIGHT];

static struct handing {
    nvtxDomainHandle_t domain;
    uint64_t schema;
    int rounds;
} handing;

static void *start_ranges(void *first_flight) {
    struct flight *flight = first_flight;
    for (int round = 0; round < handing.rounds; round++) {
        for (int i = 0; i < IN_FLIGHT; i++) {
            flight[i].step = (struct step){round, flight - flights, i, -1};
            nvtxPayloadData_t data = {handing.schema, sizeof flight[i].step, &flight[i].step};
            nvtxEventAttributes_t event = ascii("handed over");
            event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
            event.reserved0 = 1;
            event.payload.ullValue = (uintptr_t)&data;
            flight[i].id = nvtxDomainRangeStartEx(handing.domain, &event);
        }
        pthread_barrier_wait(&together); /* all are started */
        pthread_barrier_wait(&together); /* all are ended */
    }
    return NULL;
}

static void *end_ranges(void *number) {
    for (int round = 0; round < handing.rounds; round++) {
        pthread_barrier_wait(&together);
        for (int i = *(int *)number; i < STARTERS * IN_FLIGHT; i += ENDERS) {
            struct flight *flight = &flights[STARTERS * IN_FLIGHT - 1 - i];
            nvtxPayloadData_t data = {handing.schema, sizeof flight->step, &flight->step};
            nvtxRangeEndPayload(handing.domain, flight->id, &data, 1);
        }
        pthread_barrier_wait(&together);
    }
    return NULL;
}

static void handed(int number) {
    pthread_t thread[STARTERS + ENDERS];
    int ender[ENDERS];
    handing.domain = nvtxDomainCreateA("handed over");
    handing.schema = step_schema(handing.domain);
    handing.rounds = number;
    pthread_barrier_init(&together, NULL, STARTERS + ENDERS);
    for (int i = 0; i < STARTERS; i++)
        pthread_create(&thread[i], NULL, start_ranges, &flights[i * IN_FLIGHT]);
    for (int i = 0; i < ENDERS; i++) {
        ender[i] = i;
        pthread_create(&thread[STARTERS + i], NULL, end_ranges, &ender[i]);
    }
    for (int i = 0; i < STARTERS + ENDERS; i++)
        pthread_join(thread[i], NULL);
}

#if defined(__SANITIZE_ADDRESS__)
static int is_child;

/* The leak check at a child's exit looks for threads that fork has left behind, and may never end:
 * the sanitizer asks here whether to do without. */
int __lsan_is_turned_off(void);  // NOLINT(bugprone-reserved-identifier)
int __lsan_is_turned_off(void) { // NOLINT(bugprone-reserved-identifier)
    return is_child;
}
#define CHILD_BEGINS() (is_child = 1)
#else
#define CHILD_BEGINS() (void)0
#endif

static void forks(int number) {
    int status;
    nvtxRangePushA("parent");
    for (int child = 0; child < number; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHILD_BEGINS();
            nvtxRangePushA("child");
            nvtxRangePop();
            exit(0);
        }
        waitpid(pid, &status, 0);
    }
    nvtxRangePop();
}

/* Bytes of the files called *.spool that this process has open. */
static long long written(void) {
    char link[64], path[4096];
    struct stat file;
    long long bytes = 0;
    for (int fd = 0; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length < 6 || memcmp(path + length - 6, ".spool", 6) != 0 || fstat(fd, &file))
            continue;
        bytes += file.st_size;
    }
    return bytes;
}

/* When its ranges have been written, however long the collector gets no core: either they are by
 * now, or they come later and at once. */
static void killed(int number) {
    for (int i = 0; i < number; i++) {
        nvtxRangePushA("before the kill");
        nvtxRangePop();
    }
    long long before = written();
    for (int i = 0; i < 100 && written() == before; i++)
        spend(50000);
    spend(300000);
    kill(getpid(), SIGKILL);
}

static void deep(int number) {
    for (int i = 0; i < number; i++)
        nvtxRangePushA("deep");
    for (int i = 0; i < number; i++)
        nvtxRangePop();
    expect(nvtxRangePop() < 0, 1, "no further one");
}

static void status(int number) {
    nvtxRangePushA("something");
    nvtxRangePop();
    exit(number);
}

static const struct {
    const char *name;
    void (*play)(int number);
} scenes[] = {{"plain", plain},       {"domains", domains}, {"payloads", payloads},
              {"wrong", wrong},       {"told", told},       {"bytes", bytes},
              {"threads", threads},   {"forks", forks},     {"generations", generations},
              {"crossing", crossing}, {"killed", killed},   {"deep", deep},
              {"status", status},     {"handed", handed},   {"nested", nested}};

int main(int argc, char *argv[]) {
    for (size_t i = 0; argc > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (!strcmp(argv[1], scenes[i].name)) {
            scenes[i].play(argc > 2 ? atoi(argv[2]) : 0);
            return 0;
        }
    return 2;
}
