-- Arrows between the spans of moeperf_exchange: of each span but the last one to start in its
-- exchange name, rank, tid and end, of that one rank, tid and start.
SELECT coalesce(value, '?'), rank, tid, until, last_rank, last_tid, last_ns
FROM temp.moeperf_exchange
JOIN (SELECT iteration, layer, phase_id, direction, turn,
             max(start_ns) AS last_ns, rank AS last_rank, tid AS last_tid
      FROM temp.moeperf_exchange GROUP BY iteration, layer, phase_id, direction, turn)
    USING (iteration, layer, phase_id, direction, turn)
LEFT JOIN StringIds ON id = phase_id
WHERE rank <> last_rank
ORDER BY iteration, layer, phase_id, direction, turn, rank
