/* One rank, no library.  Nothing has to travel, so the table ends after what every comm needs. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "reference/comm/transport.h"

static void self_destroy(struct mp_comm *comm) {
    free(comm);
}

/* No other rank has to be ended, and this one is the caller's. */
static void self_abort(struct mp_comm *comm, int status) {
    (void)comm;
    (void)status;
}

static void self_describe(struct mp_comm *comm, char *text, size_t size) {
    (void)comm;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    snprintf(text, size, "one process, host %s", host);
}

static const struct mp_comm_operations self_operations = {
    .name = "self",
    .destroy = self_destroy,
    .abort = self_abort,
    .describe = self_describe,
};

int mp_comm_self_create_on(struct mp_device *device, struct mp_comm **comm,
                           struct mp_error *error) {
    struct mp_transport *transport;
    MP_TRY(MP_NEW(transport, 1, error));
    transport->comm = (struct mp_comm){.operations = &self_operations, .rank = 0, .ranks = 1};
    transport->device = device;
    *comm = &transport->comm;
    return MP_OK;
}

int mp_comm_self_create(struct mp_comm **comm, struct mp_error *error) {
    return mp_comm_self_create_on(NULL, comm, error);
}
