-- NCCL's operations, per communicator.
SELECT 4, 0,
       printf('NCCL %016llx, %lld of %lld', communicator, communicator_rank, communicator_size),
       NULL, coalesce(function, 'collective'), 'nccl',
       CASE WHEN NOT EXISTS (SELECT 1 FROM device_spool WHERE run_id = ?1 AND rank = ?4
                             AND collector = 'nccl' AND clock = 'unknown') THEN start_ns END,
       until, id, NULL, NULL, launch.tid, launch.at_ns, wait_ms, NULL, NULL, NULL, NULL, NULL,
       printf('%016llx', communicator) AS communicator, ordinal, operations, bytes,
       CASE WHEN wait_ms IS NOT NULL THEN CAST(printf('%.6f', wait_ms) AS BLOB) END AS wait_ms,
       CASE WHEN transfer_ms IS NOT NULL THEN CAST(printf('%.6f', transfer_ms) AS BLOB) END
           AS transfer_ms
FROM (SELECT *, rowid AS id, max(start_ns, coalesce(end_ns, start_ns)) AS until
      FROM temp.moeperf_collective
      WHERE rank = ?4 AND (start_ns IS NULL OR (start_ns <= ?6 AND
                           max(start_ns, coalesce(end_ns, start_ns)) >= ?5))
      ORDER BY communicator, communicator_rank, start_ns, until DESC, id LIMIT -1)
LEFT JOIN temp.moeperf_launch AS launch ON launch.process = -1 AND launch.number = span_id
