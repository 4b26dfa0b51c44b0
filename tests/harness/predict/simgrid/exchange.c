/* An exchange as SimGrid simulates it: simgrid_exchange PLATFORM.xml FLOWS [SimGrid's options]
 *
 * FLOWS is text: the number of ranks, the number of flows, then FROM TO BYTES of each; rank r is
 * the platform's host "r".  Every rank is an actor that posts all that it sends and gets at time 0
 * and waits for all of it.  Prints a line with the seconds that simulating took on a monotonic
 * clock (without reading files, building the platform and starting actors), then each rank's
 * finish. */
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct flow {
    int from, to;
    long bytes;
    sg_mailbox_t mailbox;
};

static struct {
    int ranks, flows;
    struct flow *flow;
    double *done;
    char payload;
} exchange;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_rank(int count, char *arguments[]) {
    int rank = count > 1 ? atoi(arguments[1]) : 0;
    sg_comm_t *comms = calloc(2 * (size_t)exchange.flows + 1, sizeof *comms);
    void **payloads = calloc((size_t)exchange.flows + 1, sizeof *payloads);
    size_t posted = 0;
    if (comms && payloads)
        for (int f = 0; f < exchange.flows; f++) {
            struct flow *flow = &exchange.flow[f];
            if (flow->from == rank)
                comms[posted++] =
                    sg_mailbox_put_async(flow->mailbox, &exchange.payload, flow->bytes);
            if (flow->to == rank)
                comms[posted++] = sg_mailbox_get_async(flow->mailbox, &payloads[f]);
        }
    for (size_t i = 0; i < posted; i++)
        sg_comm_wait(comms[i]);
    exchange.done[rank] = simgrid_get_clock();
    free(payloads);
    free(comms);
}

static bool read_flows(const char *path) {
    FILE *file = fopen(path, "r");
    bool good = file && fscanf(file, "%d %d", &exchange.ranks, &exchange.flows) == 2 &&
                exchange.ranks > 0 && exchange.flows >= 0;
    if (good) {
        exchange.flow = calloc((size_t)exchange.flows + 1, sizeof *exchange.flow);
        exchange.done = calloc((size_t)exchange.ranks, sizeof *exchange.done);
        good = exchange.flow && exchange.done;
    }
    for (int f = 0; good && f < exchange.flows; f++) {
        struct flow *flow = &exchange.flow[f];
        good = fscanf(file, "%d %d %ld", &flow->from, &flow->to, &flow->bytes) == 3;
    }
    if (file)
        fclose(file);
    return good;
}

static void start_ranks(void) {
    char name[32];
    for (int f = 0; f < exchange.flows; f++) {
        snprintf(name, sizeof name, "%d-%d", exchange.flow[f].from, exchange.flow[f].to);
        exchange.flow[f].mailbox = sg_mailbox_by_name(name);
    }
    for (int rank = 0; rank < exchange.ranks; rank++) {
        snprintf(name, sizeof name, "%d", rank);
        const char *arguments[] = {"rank", name, NULL};
        sg_actor_create(name, sg_host_by_name(name), run_rank, 2, (char *const *)arguments);
    }
}

int main(int count, char *arguments[]) {
    simgrid_init(&count, arguments);
    if (count < 3 || !read_flows(arguments[2])) {
        fprintf(stderr, "usage: simgrid_exchange PLATFORM.xml FLOWS\n");
        return 2;
    }
    simgrid_load_platform(arguments[1]);
    start_ranks();
    double begin = seconds();
    simgrid_run();
    printf("%.9g\n", seconds() - begin);
    for (int rank = 0; rank < exchange.ranks; rank++)
        printf("%.17g\n", exchange.done[rank]);
    free(exchange.flow);
    free(exchange.done);
    return 0;
}
