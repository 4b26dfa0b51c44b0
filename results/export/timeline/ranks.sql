-- All ranks that have anything to draw, also those that only have GPU work: rank, host, first and
-- last span, whether its clock is known.
SELECT rank, host, first_span, last_span, clock IS NOT 'wall clock'
FROM rank
WHERE run_id = ?1
  AND (first_span IS NOT NULL
       OR EXISTS (SELECT 1 FROM NVTX_EVENTS AS event
                  WHERE event.run_id = ?1 AND event.rank = rank.rank)
       OR EXISTS (SELECT 1 FROM device_spool
                  WHERE device_spool.run_id = ?1 AND device_spool.rank = rank.rank))
UNION ALL
SELECT rank, min(host), NULL, NULL, 1 FROM device_spool
WHERE run_id = ?1 AND rank NOT IN (SELECT rank FROM rank WHERE run_id = ?1)
GROUP BY rank
ORDER BY rank
