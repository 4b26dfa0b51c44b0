/* NCCL, loaded at run time: the part of its interface (nccl.h of version 2) that is used, declared
 * here so that everything compiles where NCCL is not.  A test compares it with <nccl.h>. */
#pragma once

#include <limits.h>
#include <stddef.h>

#include "reference/base/error.h"

enum { MP_NCCL_ID_BYTES = 128, MP_NCCL_OLDEST = 21800, MP_NCCL_UNDEFINED = INT_MIN };
#define MP_NCCL_CONFIG_MAGIC 0xcafebeefu

typedef struct {
    char internal[MP_NCCL_ID_BYTES];
} mp_nccl_id; /* ncclUniqueId */

typedef struct ncclComm *mp_nccl_comm; /* ncclComm_t */

/* ncclConfig_t of the oldest version, which later ones take: theirs begins with it. */
struct mp_nccl_config {
    size_t size; /* of this */
    unsigned magic, version;
    int blocking, cluster_blocks, least_blocks;
    int most_blocks; /* that a kernel has */
    const char *network;
    int split_share;
};

enum mp_nccl_result { MP_NCCL_SUCCESS = 0, MP_NCCL_REMOTE_ERROR = 6, MP_NCCL_IN_PROGRESS = 7 };
enum mp_nccl_type {
    MP_NCCL_UINT8 = 1,
    MP_NCCL_UINT32 = 3,
    MP_NCCL_FLOAT32 = 7,
    MP_NCCL_FLOAT64 = 8
};
enum mp_nccl_operation { MP_NCCL_SUM = 0, MP_NCCL_MAX = 2 };

/* Streams are cudaStream_t; results are enum mp_nccl_result. */
struct mp_nccl_library {
    void *handle;
    int version; /* 22809: 2.28.9 */
    int (*get_version)(int *version);
    int (*get_unique_id)(mp_nccl_id *id);
    int (*comm_init_rank)(mp_nccl_comm *comm, int ranks, mp_nccl_id id, int rank,
                          struct mp_nccl_config *config);
    int (*comm_destroy)(mp_nccl_comm comm);
    int (*comm_abort)(mp_nccl_comm comm);
    int (*comm_get_async_error)(mp_nccl_comm comm, int *result);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(mp_nccl_comm comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *memory, size_t count, int type, int peer, mp_nccl_comm comm,
                void *stream);
    int (*receive)(void *memory, size_t count, int type, int peer, mp_nccl_comm comm, void *stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root,
                     mp_nccl_comm comm, void *stream);
    int (*reduce)(const void *from, void *to, size_t count, int type, int operation, int root,
                  mp_nccl_comm comm, void *stream);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation,
                      mp_nccl_comm comm, void *stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type, mp_nccl_comm comm,
                      void *stream);
};

/* Loads libnccl.so.2, or what MOEPERF_NCCL_LIBRARY names.  It stays loaded, since NCCL has threads
 * of its own.
 * Errors: MP_ENOTFOUND (no such library, or one that lacks a function), MP_EVERSION (older than
 * 2.18). */
int mp_nccl_load(struct mp_nccl_library *library, struct mp_error *error);
