-- Arrows between the spans of moeperf_exchange: of each span but the last one to start in its
-- exchange name, rank, tid and end, of that one rank, tid and start.
WITH part AS (
    SELECT iteration, layer, phase_id, direction, rank, tid, start_ns,
           max(start_ns, end_ns) AS until,
           row_number() OVER (PARTITION BY rank, iteration, layer, phase_id, direction
                              ORDER BY start_ns, max(start_ns, end_ns)) AS turn
    FROM temp.moeperf_exchange JOIN span USING (span_id)),
met AS (
    SELECT *, first_value(rank) OVER last AS last_rank, first_value(tid) OVER last AS last_tid,
           first_value(start_ns) OVER last AS last_ns
    FROM part
    WINDOW last AS (PARTITION BY iteration, layer, phase_id, direction, turn
                    ORDER BY start_ns DESC, rank))
SELECT coalesce(value, '?'), rank, tid, until, last_rank, last_tid, last_ns
FROM met LEFT JOIN StringIds ON id = phase_id
WHERE rank <> last_rank
ORDER BY iteration, layer, phase_id, direction, turn, rank
