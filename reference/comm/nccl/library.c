#include "reference/comm/nccl/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Every function: its name in the library and its place in the table. */
static const struct symbol {
    const char *name;
    size_t place;
} symbols[] = {
    {"ncclGetVersion", offsetof(struct mp_nccl_library, get_version)},
    {"ncclGetUniqueId", offsetof(struct mp_nccl_library, get_unique_id)},
    {"ncclCommInitRankConfig", offsetof(struct mp_nccl_library, comm_init_rank)},
    {"ncclCommDestroy", offsetof(struct mp_nccl_library, comm_destroy)},
    {"ncclCommAbort", offsetof(struct mp_nccl_library, comm_abort)},
    {"ncclCommGetAsyncError", offsetof(struct mp_nccl_library, comm_get_async_error)},
    {"ncclGetErrorString", offsetof(struct mp_nccl_library, get_error_string)},
    {"ncclGetLastError", offsetof(struct mp_nccl_library, get_last_error)},
    {"ncclGroupStart", offsetof(struct mp_nccl_library, group_start)},
    {"ncclGroupEnd", offsetof(struct mp_nccl_library, group_end)},
    {"ncclSend", offsetof(struct mp_nccl_library, send)},
    {"ncclRecv", offsetof(struct mp_nccl_library, receive)},
    {"ncclBroadcast", offsetof(struct mp_nccl_library, broadcast)},
    {"ncclReduce", offsetof(struct mp_nccl_library, reduce)},
    {"ncclAllReduce", offsetof(struct mp_nccl_library, all_reduce)},
    {"ncclAllGather", offsetof(struct mp_nccl_library, all_gather)},
};

int mp_nccl_load(struct mp_nccl_library *library, struct mp_error *error) {
    const char *given = getenv("MOEPERF_NCCL_LIBRARY");
    const char *name = given && *given ? given : "libnccl.so.2";
    *library = (struct mp_nccl_library){.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!library->handle)
        return mp_fail(error, MP_ENOTFOUND,
                       "NCCL can't be loaded (%s); install libnccl2, name the library in "
                       "MOEPERF_NCCL_LIBRARY, or use transport mpi",
                       dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *function = dlsym(library->handle, symbols[i].name);
        if (!function)
            return mp_fail(error, MP_ENOTFOUND,
                           "%s has no function %s; it takes NCCL 2.18 or later", name,
                           symbols[i].name);
        memcpy((char *)library + symbols[i].place, &function, sizeof function);
    }
    int result = library->get_version(&library->version);
    if (result != MP_NCCL_SUCCESS || library->version < MP_NCCL_OLDEST)
        return mp_fail(error, MP_EVERSION,
                       "%s says that it is version %d of NCCL; it takes 2.18 (%d) or later", name,
                       library->version, MP_NCCL_OLDEST);
    return MP_OK;
}
