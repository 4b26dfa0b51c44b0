/* What library.h declares of NCCL is what <nccl.h> says. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "reference/comm/nccl/library.h"
#include "tests/support.h"

static_assert(sizeof(mp_nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId");
static_assert(_Alignof(mp_nccl_id) == _Alignof(ncclUniqueId), "ncclUniqueId");
static_assert(MP_NCCL_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "NCCL_UNIQUE_ID_BYTES");
static_assert((int)MP_NCCL_SUCCESS == (int)ncclSuccess, "ncclSuccess");
static_assert((int)MP_NCCL_REMOTE_ERROR == (int)ncclRemoteError, "ncclRemoteError");
static_assert((int)MP_NCCL_IN_PROGRESS == (int)ncclInProgress, "ncclInProgress");
static_assert((int)MP_NCCL_UINT8 == (int)ncclUint8, "ncclUint8");
static_assert((int)MP_NCCL_UINT32 == (int)ncclUint32, "ncclUint32");
static_assert((int)MP_NCCL_FLOAT32 == (int)ncclFloat32, "ncclFloat32");
static_assert((int)MP_NCCL_FLOAT64 == (int)ncclFloat64, "ncclFloat64");
static_assert((int)MP_NCCL_SUM == (int)ncclSum, "ncclSum");
static_assert((int)MP_NCCL_MAX == (int)ncclMax, "ncclMax");
static_assert(sizeof(ncclResult_t) == sizeof(int), "results are passed as int");
static_assert(sizeof(ncclDataType_t) == sizeof(int), "types are passed as int");
static_assert(sizeof(ncclRedOp_t) == sizeof(int), "operations are passed as int");
static_assert(sizeof(cudaStream_t) == sizeof(void *), "streams are passed as void *");
static_assert(sizeof(ncclComm_t) == sizeof(mp_nccl_comm), "ncclComm_t");

#define CONFIG(ours, theirs)                                                                       \
    static_assert(offsetof(struct mp_nccl_config, ours) == offsetof(ncclConfig_t, theirs), #theirs)
CONFIG(size, size);
CONFIG(magic, magic);
CONFIG(version, version);
CONFIG(blocking, blocking);
CONFIG(cluster_blocks, cgaClusterSize);
CONFIG(least_blocks, minCTAs);
CONFIG(most_blocks, maxCTAs);
CONFIG(network, netName);
CONFIG(split_share, splitShare);
static_assert(MP_NCCL_UNDEFINED == NCCL_CONFIG_UNDEF_INT, "NCCL_CONFIG_UNDEF_INT");
static_assert(MP_NCCL_OLDEST == NCCL_VERSION(2, 18, 0), "NCCL_VERSION");

/* Each function has the parameters of its entry in the table, but for types of equal size. */
#define SAME(function, ...)                                                                        \
    static_assert(_Generic(&function, ncclResult_t(*)(__VA_ARGS__) : 1, default : 0), #function)
SAME(ncclGetVersion, int *);
SAME(ncclGetUniqueId, ncclUniqueId *);
SAME(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
SAME(ncclCommDestroy, ncclComm_t);
SAME(ncclCommAbort, ncclComm_t);
SAME(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
SAME(ncclGroupStart, void);
SAME(ncclGroupEnd, void);
SAME(ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(ncclReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
     cudaStream_t);
SAME(ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
     cudaStream_t);
SAME(ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
static_assert(_Generic(&ncclGetErrorString, const char *(*)(ncclResult_t) : 1, default : 0), "");
static_assert(_Generic(&ncclGetLastError, const char *(*)(ncclComm_t) : 1, default : 0), "");

/* The rest is checked above, when this is compiled; by value, what is 128 bytes here is there. */
TEST_RANDOM(ids_are_bytes) {
    mp_nccl_id ours;
    ncclUniqueId theirs;
    for (int i = 0; i < MP_NCCL_ID_BYTES; i++)
        ours.internal[i] = (char)test_random(random);
    memcpy(&theirs, &ours, sizeof theirs);
    assert_memory_equal(theirs.internal, ours.internal, MP_NCCL_ID_BYTES);
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(config.magic, MP_NCCL_CONFIG_MAGIC);
    assert_null(config.netName);
}
