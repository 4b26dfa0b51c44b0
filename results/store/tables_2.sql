-- What schema version 2 adds to schema.sql, whose conventions hold here, too.  Tables that have a
-- counterpart in Nsight Systems' SQLite export have its name, and their columns theirs; run_id and
-- the columns behind it are ours.

-- What annotated programs said of themselves (moeperf record), as it was, before any rules.
--   eventType     33 a category's name, 34 mark, 59 pushed range, 60 started range, 75 a domain
--   start, "end"  ns from the run's first event, as in table span; "end" NULL: marks, and ranges
--                 that were open when their process ended
--   text, textId  name of the range; text is NULL where textId is given, as in long exports
--   globalTid     process and thread: pid = globalTid / 0x1000000 % 0x1000000, tid = globalTid %
--                 0x1000000
--   domainId      counts from 1 in each process; 0 the default domain.  v_nvtx has their names
--   uint64Value .. floatValue  the payload, by its type; jsonText: payloads with schemas, an array
--                 of one object each
--   level         pushed ranges around it, of its thread and domain
CREATE TABLE NVTX_EVENTS (
    start       INTEGER NOT NULL,
    "end"       INTEGER,
    eventType   INTEGER NOT NULL,
    rangeId     INTEGER,
    category    INTEGER,
    color       INTEGER,
    text        TEXT,
    globalTid   INTEGER,
    endGlobalTid INTEGER,
    textId      INTEGER REFERENCES StringIds,
    domainId    INTEGER,
    uint64Value INTEGER,
    int64Value  INTEGER,
    doubleValue REAL,
    uint32Value INTEGER,
    int32Value  INTEGER,
    floatValue  REAL,
    jsonTextId  INTEGER,
    jsonText    TEXT,
    binaryData  TEXT,
    run_id      INTEGER NOT NULL REFERENCES run,
    rank        INTEGER NOT NULL,
    level       INTEGER
) STRICT;
CREATE INDEX NVTX_EVENTS_by_run ON NVTX_EVENTS (run_id, rank);
CREATE INDEX NVTX_EVENTS_domains ON NVTX_EVENTS (run_id, rank, domainId) WHERE eventType = 75;

-- Names that programs gave to their threads.
CREATE TABLE ThreadNames (
    nameId    INTEGER NOT NULL REFERENCES StringIds,
    priority  INTEGER,
    globalTid INTEGER NOT NULL,
    run_id    INTEGER NOT NULL REFERENCES run,
    rank      INTEGER NOT NULL
) STRICT;

-- One spool of a collector of GPU work that was added to a run (mp_store_add_device): what it was,
-- how it ended.
CREATE TABLE device_spool (
    run_id       INTEGER NOT NULL REFERENCES run,
    rank         INTEGER NOT NULL,
    collector    TEXT NOT NULL, -- cupti, nccl
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    started_ns   INTEGER NOT NULL, -- wall clock; with the others it names the file
    status       TEXT,    -- on, or why the collector is off
    complete     INTEGER NOT NULL, -- 1: it has its end; 0: as after a kill
    unread_bytes INTEGER NOT NULL,
    clock        TEXT, -- as in table rank; unknown: its times are on its own host's clock
    PRIMARY KEY (run_id, rank, collector, host, pid, started_ns)
) STRICT, WITHOUT ROWID;

-- GPU work, recorded by CUPTI (profiler/cupti).  start and "end" are as in table span, NULL where
-- CUPTI did not know them.  Names are ids of StringIds; as CUPTI gives the linker's name only, the
-- three names of a kernel are the same.  span_id: the span during which it was launched.
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start                INTEGER,
    "end"                INTEGER,
    deviceId             INTEGER NOT NULL,
    contextId            INTEGER NOT NULL,
    greenContextId       INTEGER,
    streamId             INTEGER NOT NULL,
    correlationId        INTEGER,
    globalPid            INTEGER,
    demangledName        INTEGER REFERENCES StringIds,
    shortName            INTEGER REFERENCES StringIds,
    mangledName          INTEGER REFERENCES StringIds,
    launchType           INTEGER,
    cacheConfig          INTEGER,
    registersPerThread   INTEGER,
    gridX                INTEGER,
    gridY                INTEGER,
    gridZ                INTEGER,
    blockX               INTEGER,
    blockY               INTEGER,
    blockZ               INTEGER,
    staticSharedMemory   INTEGER,
    dynamicSharedMemory  INTEGER,
    localMemoryPerThread INTEGER,
    localMemoryTotal     INTEGER,
    gridId               INTEGER,
    sharedMemoryExecuted INTEGER,
    graphNodeId          INTEGER,
    sharedMemoryLimitConfig INTEGER,
    run_id               INTEGER NOT NULL REFERENCES run,
    rank                 INTEGER NOT NULL,
    span_id              INTEGER
) STRICT;
CREATE INDEX CUPTI_ACTIVITY_KIND_KERNEL_by_run ON CUPTI_ACTIVITY_KIND_KERNEL (run_id, rank);

-- copyKind: 1 HtoD, 2 DtoH, 8 DtoD, 9 HtoH, 10 PtoP.
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start          INTEGER,
    "end"          INTEGER,
    deviceId       INTEGER NOT NULL,
    contextId      INTEGER NOT NULL,
    greenContextId INTEGER,
    streamId       INTEGER NOT NULL,
    correlationId  INTEGER,
    globalPid      INTEGER,
    bytes          INTEGER NOT NULL,
    copyKind       INTEGER NOT NULL,
    srcKind        INTEGER,
    dstKind        INTEGER,
    srcDeviceId    INTEGER,
    srcContextId   INTEGER,
    dstDeviceId    INTEGER,
    dstContextId   INTEGER,
    graphNodeId    INTEGER,
    run_id         INTEGER NOT NULL REFERENCES run,
    rank           INTEGER NOT NULL,
    span_id        INTEGER,
    copies         INTEGER -- in this record
) STRICT;
CREATE INDEX CUPTI_ACTIVITY_KIND_MEMCPY_by_run ON CUPTI_ACTIVITY_KIND_MEMCPY (run_id, rank);

CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (
    start          INTEGER,
    "end"          INTEGER,
    deviceId       INTEGER NOT NULL,
    contextId      INTEGER NOT NULL,
    greenContextId INTEGER,
    streamId       INTEGER NOT NULL,
    correlationId  INTEGER,
    globalPid      INTEGER,
    value          INTEGER NOT NULL,
    bytes          INTEGER NOT NULL,
    graphNodeId    INTEGER,
    memKind        INTEGER,
    run_id         INTEGER NOT NULL REFERENCES run,
    rank           INTEGER NOT NULL,
    span_id        INTEGER
) STRICT;
CREATE INDEX CUPTI_ACTIVITY_KIND_MEMSET_by_run ON CUPTI_ACTIVITY_KIND_MEMSET (run_id, rank);

-- Calls of CUDA's runtime and driver on the host.
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start         INTEGER,
    "end"         INTEGER,
    eventClass    INTEGER,
    globalTid     INTEGER,
    correlationId INTEGER,
    nameId        INTEGER REFERENCES StringIds,
    returnValue   INTEGER NOT NULL,
    callchainId   INTEGER,
    run_id        INTEGER NOT NULL REFERENCES run,
    rank          INTEGER NOT NULL,
    span_id       INTEGER
) STRICT;
CREATE INDEX CUPTI_ACTIVITY_KIND_RUNTIME_by_run ON CUPTI_ACTIVITY_KIND_RUNTIME (run_id, rank);

-- Time that CUPTI says its collecting took; kind is CUpti_ActivityOverheadKind.
CREATE TABLE gpu_overhead (
    run_id   INTEGER NOT NULL REFERENCES run,
    rank     INTEGER NOT NULL,
    start_ns INTEGER,
    end_ns   INTEGER,
    kind     INTEGER NOT NULL
) STRICT;
CREATE INDEX gpu_overhead_by_run ON gpu_overhead (run_id, rank);

-- NCCL's operations, recorded by its plug-in (profiler/nccl): one row per rank and collective, send
-- or receive.  v_collective puts the ranks side by side.
CREATE TABLE collective (
    run_id            INTEGER NOT NULL REFERENCES run,
    rank              INTEGER NOT NULL, -- of the run
    communicator      INTEGER NOT NULL, -- its hash, as in NCCL's NVTX payloads
    function_id       INTEGER REFERENCES StringIds,
    is_pair           INTEGER NOT NULL, -- 1: send or receive
    sequence          INTEGER NOT NULL, -- of the function in its communicator; 0 for pairs
    group_ordinal     INTEGER NOT NULL, -- of the group call in its communicator; 0 not known
    communicator_rank INTEGER NOT NULL,
    communicator_size INTEGER NOT NULL,
    peer              INTEGER NOT NULL, -- of send and receive, else the root
    datatype_id       INTEGER REFERENCES StringIds,
    count             INTEGER NOT NULL, -- elements
    bytes             INTEGER,          -- NULL: a type whose size is not known
    algorithm_id      INTEGER REFERENCES StringIds,
    protocol_id       INTEGER REFERENCES StringIds,
    channels          INTEGER NOT NULL,
    timed_channels    INTEGER NOT NULL, -- whose times are in start_ns .. end_ns
    queue_start_ns    INTEGER NOT NULL, -- the host began to queue it
    queue_end_ns      INTEGER,
    start_ns          INTEGER, -- on the GPU: first channel's start, last channel's end; NULL: no time
    end_ns            INTEGER,
    span_id           INTEGER  -- during which the host began to queue it
) STRICT;
CREATE INDEX collective_by_run ON collective (run_id, rank);
