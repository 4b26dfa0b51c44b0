-- The host's spans, stream by stream.
SELECT 0, stream_id, coalesce(stream.value, '?'),
       CASE stream.value WHEN 'compute' THEN 1 WHEN 'comm' THEN 33 END,
       coalesce(phase.value, '?'), coalesce(stream.value, '?'), start_ns, until, span_id,
       -1, span_id, NULL, NULL, NULL,
       CASE WHEN stream.value = 'compute' AND phase.value IN ('dispatch', 'combine')
            THEN phase_id END,
       CASE WHEN stream.value = 'compute' AND phase.value = 'expert' AND direction = 0
            THEN tokens END,
       iteration, layer, coalesce(direction, -1),
       iteration, CASE direction WHEN 0 THEN 'forward' WHEN 1 THEN 'backward' END AS direction,
       layer, nullif(wait_ns, 0) AS wait_ns, cpu_ns, tokens, bytes, flops
FROM (SELECT *, max(start_ns, end_ns) AS until FROM span
      WHERE span_id BETWEEN ?7 AND ?8 AND iteration BETWEEN ?2 AND ?3)
LEFT JOIN StringIds AS stream ON stream.id = stream_id
LEFT JOIN StringIds AS phase ON phase.id = phase_id
ORDER BY stream_id, start_ns, until DESC, span_id
