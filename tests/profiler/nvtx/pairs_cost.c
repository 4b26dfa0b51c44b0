/* Cost of one push/pop pair, in ns: the median of many short loops.  Prints "ns_per_pair X" and,
 * with the argument "clock", the cost of two clock reads instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nvtx3/nvToolsExt.h>

enum { LOOPS = 4001, PAIRS = 50 };

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    long long left = *(const long long *)a, right = *(const long long *)b;
    return (left > right) - (left < right);
}

static long long sink;

int main(int argc, char *argv[]) {
    static long long loop_ns[LOOPS];
    const int clock_only = argc > 1 && !strcmp(argv[1], "clock");
    nvtxDomainHandle_t domain = nvtxDomainCreateA("cost");
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_REGISTERED};
    event.message.registered = nvtxDomainRegisterStringA(domain, "a registered string");
    for (int loop = 0; loop < LOOPS; loop++) {
        long long start_ns = now_ns();
        for (int i = 0; i < PAIRS; i++) {
            if (clock_only) {
                long long first_ns = now_ns();
                sink += now_ns() - first_ns;
                continue;
            }
            nvtxDomainRangePushEx(domain, &event);
            nvtxDomainRangePop(domain);
        }
        loop_ns[loop] = now_ns() - start_ns;
    }
    qsort(loop_ns, LOOPS, sizeof *loop_ns, compare);
    printf("ns_per_pair %.2f\n", (double)loop_ns[LOOPS / 2] / PAIRS);
    return 0;
}
