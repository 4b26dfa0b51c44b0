-- What GPUs did: kernels, copies and fills, per stream.  A context or a process is named where it is
-- not the first one.
WITH item AS NOT MATERIALIZED (
    SELECT globalPid / 0x1000000 AS process, deviceId, contextId, streamId, 'kernel' AS kind, start,
           max(start, coalesce("end", start)) AS until, rowid AS id, demangledName, correlationId,
           NULL AS bytes, NULL AS detail,
           CAST('[' || gridX || ',' || gridY || ',' || gridZ || ']' AS BLOB) AS grid,
           CAST('[' || blockX || ',' || blockY || ',' || blockZ || ']' AS BLOB) AS block,
           registersPerThread, staticSharedMemory, dynamicSharedMemory, span_id
    FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE run_id = ?1 AND rank = ?4
    UNION ALL
    SELECT globalPid / 0x1000000, deviceId, contextId, streamId, 'memcpy', start,
           max(start, coalesce("end", start)), rowid, NULL, correlationId, bytes, copyKind, NULL,
           NULL, NULL, NULL, NULL, span_id
    FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE run_id = ?1 AND rank = ?4
    UNION ALL
    SELECT globalPid / 0x1000000, deviceId, contextId, streamId, 'memset', start,
           max(start, coalesce("end", start)), rowid, NULL, correlationId, bytes, value, NULL,
           NULL, NULL, NULL, NULL, span_id
    FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE run_id = ?1 AND rank = ?4),
first AS MATERIALIZED (
    SELECT process, deviceId, min(contextId) AS contextId FROM item
    WHERE start <= ?6 AND until >= ?5 GROUP BY 1, 2)
SELECT 3, 0,
       'GPU ' || work.deviceId
           || CASE work.contextId WHEN first.contextId THEN ''
                                  ELSE ' context ' || work.contextId END
           || ' stream ' || streamId
           || CASE WHEN work.process IS (SELECT min(process) FROM first) THEN ''
                   ELSE ', process ' || coalesce(work.process, 0) END,
       NULL,
       CASE WHEN demangledName IS NOT NULL THEN coalesce(name.value, '?')
            WHEN kind <> 'memcpy' THEN kind
            ELSE 'memcpy' || CASE detail WHEN 1 THEN ' HtoD' WHEN 2 THEN ' DtoH'
                                         WHEN 3 THEN ' HtoA' WHEN 4 THEN ' AtoH'
                                         WHEN 5 THEN ' AtoA' WHEN 6 THEN ' AtoD'
                                         WHEN 7 THEN ' DtoA' WHEN 8 THEN ' DtoD'
                                         WHEN 9 THEN ' HtoH' WHEN 10 THEN ' PtoP'
                                         ELSE '' END END,
       kind,
       CASE WHEN NOT EXISTS (SELECT 1 FROM device_spool WHERE run_id = ?1 AND rank = ?4
                             AND collector = 'cupti' AND clock = 'unknown') THEN start END,
       until, work.id, NULL, NULL,
       coalesce(call.tid, span_launch.tid), coalesce(call.at_ns, span_launch.at_ns),
       NULL, NULL, NULL, NULL, NULL, NULL,
       work.deviceId AS device, work.contextId AS context, streamId AS stream,
       correlationId AS correlation, work.bytes AS bytes,
       CASE kind WHEN 'memset' THEN detail END AS value, grid, block,
       registersPerThread AS registers, staticSharedMemory AS static_shared,
       dynamicSharedMemory AS dynamic_shared, iteration, layer,
       CASE WHEN phase_id IS NOT NULL THEN coalesce(phase.value, '?') END AS phase
FROM (SELECT * FROM item WHERE start IS NULL OR (start <= ?6 AND until >= ?5)
      ORDER BY process, deviceId, contextId, streamId, start, until DESC, kind, id LIMIT -1) AS work
LEFT JOIN first ON first.process IS work.process AND first.deviceId = work.deviceId
LEFT JOIN temp.moeperf_launch AS call ON call.process = work.process AND call.number = correlationId
LEFT JOIN temp.moeperf_launch AS span_launch ON span_launch.process = -1
    AND span_launch.number = work.span_id
LEFT JOIN span ON span.span_id = work.span_id
LEFT JOIN StringIds AS name ON name.id = demangledName
LEFT JOIN StringIds AS phase ON phase.id = phase_id
