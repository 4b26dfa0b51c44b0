-- What threads of the host did: ranges and marks that the program was annotated with, and its calls
-- of CUDA, which a range that makes them encloses.  Pushed ranges are drawn with the calls; started
-- ranges, which need not nest with them, beside them.
WITH category AS MATERIALIZED (
    SELECT domainId, category, max(textId) AS textId FROM NVTX_EVENTS
    WHERE run_id = ?1 AND rank = ?4 AND eventType = 33 GROUP BY 1, 2),
thread AS MATERIALIZED ( -- with the name that the program gave it last
    SELECT globalTid, value, max(ThreadNames.rowid) FROM ThreadNames
    JOIN StringIds ON id = nameId WHERE run_id = ?1 AND rank = ?4 GROUP BY 1),
event AS (
    SELECT coalesce(globalTid, 0) AS globalTid, eventType = 60 AS started, eventType, start,
           CASE eventType WHEN 34 THEN start
                          ELSE coalesce(max(start, "end"), 9223372036854775807) END AS until,
           rowid AS id, textId, text, domainId, category, level, jsonText, uint64Value,
           coalesce(int64Value, doubleValue, uint32Value, int32Value, floatValue) AS value,
           NULL AS correlation, NULL AS result
    FROM NVTX_EVENTS WHERE run_id = ?1 AND rank = ?4 AND eventType IN (34, 59, 60)
    UNION ALL
    SELECT coalesce(globalTid, 0), 0, 0, start, max(start, coalesce("end", start)), rowid, nameId,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, correlationId, nullif(returnValue, 0)
    FROM CUPTI_ACTIVITY_KIND_RUNTIME
    WHERE run_id = ?1 AND rank = ?4 AND start IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM device_spool WHERE run_id = ?1 AND rank = ?4
                      AND collector = 'cupti' AND clock = 'unknown'))
SELECT CASE event.eventType WHEN 0 THEN 2 WHEN 34 THEN 5 ELSE 1 END,
       event.globalTid << 1 | started,
       'thread ' || (event.globalTid & 0xFFFFFF) || coalesce(' ' || thread.value, '')
           || CASE WHEN started THEN ', started ranges' ELSE '' END,
       NULL,
       coalesce(event.text, name.value, CASE WHEN event.textId IS NULL THEN '' ELSE '?' END),
       CASE event.eventType WHEN 0 THEN 'cuda' ELSE 'nvtx' END, event.start, until, event.id,
       CASE event.eventType WHEN 0 THEN event.globalTid >> 24 END, correlation,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       CASE event.eventType WHEN 0 THEN 'call' WHEN 34 THEN 'mark'
                            WHEN 60 THEN 'started' ELSE 'pushed' END AS kind,
       CASE until WHEN 9223372036854775807 THEN CAST('true' AS BLOB) END AS open,
       CASE WHEN domain.textId IS NOT NULL THEN coalesce(domain_name.value, '?') END AS domain,
       CASE WHEN category.textId IS NULL THEN event.category
            ELSE coalesce(category_name.value, '?') END AS category,
       -- many readers have no integers beyond INT64_MAX
       CASE WHEN event.uint64Value < 0 THEN printf('%u', event.uint64Value)
            ELSE coalesce(event.uint64Value, event.value) END AS value,
       correlation, result, moeperf_json(event.jsonText) AS payload
FROM (SELECT * FROM event WHERE start <= ?6 AND until >= ?5
      ORDER BY globalTid, started, start, until DESC, eventType <> 59, level, id LIMIT -1) AS event
LEFT JOIN thread ON thread.globalTid = event.globalTid
LEFT JOIN StringIds AS name ON name.id = event.textId
LEFT JOIN NVTX_EVENTS AS domain ON domain.eventType = 75 AND domain.run_id = ?1
    AND domain.rank = ?4 AND domain.domainId = event.domainId
LEFT JOIN StringIds AS domain_name ON domain_name.id = domain.textId
LEFT JOIN category ON category.domainId = event.domainId AND category.category = event.category
LEFT JOIN StringIds AS category_name ON category_name.id = category.textId
