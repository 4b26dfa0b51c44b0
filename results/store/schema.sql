-- The results database of moeperf: the tables of schema version 1, and all views.  Tables of later
-- versions are in tables_2.sql; tables_3.sql lets a run's status be refused.
--
-- Conventions.  Times in tables are integer nanoseconds (_ns) on rank 0's clock, counted from the
-- run's first span; views give milliseconds (_ms, ms).  layer -1: no layer; iteration -1: the run
-- as a whole, or before its first iteration.  NULL: not recorded, does not apply, undefined.
-- Rows are only ever added: each job that a suite runs is one run.
--
-- Tables named *_summary are computed when a run is added, from its spans and loads, so that the
-- views answer at once however many spans there are, in any SQLite shell, without extensions.

---------------------------------------------------------------------------------------------------
-- Tables
---------------------------------------------------------------------------------------------------

-- Names that occur often, once (the same table as in Nsight Systems' export).
CREATE TABLE StringIds (
    id    INTEGER PRIMARY KEY,
    value TEXT NOT NULL UNIQUE
) STRICT;

-- One job of one suite invocation.
CREATE TABLE run (
    run_id            INTEGER PRIMARY KEY,
    suite             TEXT NOT NULL,
    suite_run         TEXT NOT NULL, -- id of the invocation: only runs inside one are compared
    job               TEXT NOT NULL,
    round             INTEGER NOT NULL, -- repetition, from 0
    system            TEXT NOT NULL,
    executor          TEXT NOT NULL, -- measured, predicted
    workload          TEXT NOT NULL,
    gate              TEXT,
    model             TEXT, -- what else must be equal for a comparison, e.g. the model's sizes
    ranks             INTEGER NOT NULL,
    nodes             INTEGER NOT NULL,
    ranks_per_node    INTEGER NOT NULL,
    status            TEXT NOT NULL
        CHECK (status IN ('complete', 'failed', 'interrupted', 'timeout')),
    reason            TEXT, -- why it did not complete
    started_at        TEXT NOT NULL, -- ISO 8601, UTC
    iterations_wanted INTEGER NOT NULL,
    origin_ns         INTEGER, -- rank 0's monotonic clock at the run's first span
    command           TEXT,
    suite_text        TEXT,
    job_text          TEXT
) STRICT;
CREATE INDEX run_by_suite_run ON run (suite_run, round);

-- One rank of a run.  Its spans are the rows first_span .. last_span of table span.
CREATE TABLE rank (
    run_id           INTEGER NOT NULL REFERENCES run,
    rank             INTEGER NOT NULL,
    status           TEXT NOT NULL -- complete; failed, interrupted: it said so itself; cut: its
        CHECK (status IN           -- recording ends without an end; missing: no usable recording
            ('complete', 'failed', 'interrupted', 'cut', 'missing')),
    reason           TEXT,
    node             INTEGER,
    host             TEXT,
    pid              INTEGER,
    first_span       INTEGER,
    last_span        INTEGER,
    unread_bytes     INTEGER NOT NULL, -- behind the last whole record
    clock            TEXT, -- what put its times on rank 0's clock: reference (it is that clock),
                           -- samples, same host, or for want of those wall clock
    clock_error_ns   INTEGER, -- largest error bound of the samples
    PRIMARY KEY (run_id, rank)
) STRICT, WITHOUT ROWID;

-- What a rank did when.  Rows of one rank follow each other; query through v_span, which finds
-- them by rank.first_span without an index (an index would double the cost of adding a run).
-- Stream "compute": what the rank's thread spent, wait_ns of it blocked on others.  Stream "comm":
-- the time an operation was in flight.
CREATE TABLE span (
    span_id   INTEGER PRIMARY KEY,
    run_id    INTEGER NOT NULL,
    rank      INTEGER NOT NULL,
    stream_id INTEGER NOT NULL REFERENCES StringIds,
    iteration INTEGER NOT NULL,
    layer     INTEGER NOT NULL,
    phase_id  INTEGER NOT NULL REFERENCES StringIds,
    direction INTEGER, -- 0 forward, 1 backward
    start_ns  INTEGER NOT NULL,
    end_ns    INTEGER NOT NULL,
    wait_ns   INTEGER NOT NULL,
    cpu_ns    INTEGER,
    tokens    INTEGER,
    bytes     INTEGER,
    flops     INTEGER
) STRICT;

-- Routes that the tokens of a rank chose, per expert, and how many of those were dropped: JSON
-- arrays with one number per expert.  v_load has a row per expert.
CREATE TABLE load (
    run_id    INTEGER NOT NULL,
    rank      INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    layer     INTEGER NOT NULL,
    routes    TEXT NOT NULL,
    dropped   TEXT,
    PRIMARY KEY (run_id, rank, iteration, layer)
) STRICT, WITHOUT ROWID;

-- One number by name about a run (iteration -1), an iteration (layer -1) or a layer in it.
CREATE TABLE number (
    run_id    INTEGER NOT NULL,
    rank      INTEGER NOT NULL, -- that recorded it
    iteration INTEGER NOT NULL,
    layer     INTEGER NOT NULL,
    name_id   INTEGER NOT NULL REFERENCES StringIds,
    value     REAL, -- NULL: not a number
    PRIMARY KEY (run_id, rank, iteration, layer, name_id)
) STRICT, WITHOUT ROWID;

-- One text by name about a run: environment, digests, options.  'system.unattainable' is there if
-- the run's system is a yardstick and no system; 'setting.key' see v_setting; 'cupti.note' and
-- 'nccl.note' say why something is missing of what these collectors recorded.
CREATE TABLE fact (
    run_id INTEGER NOT NULL,
    rank   INTEGER NOT NULL, -- that recorded it; -1: known without any rank
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (run_id, name, rank)
) STRICT, WITHOUT ROWID;

-- Clock samples: the rank's monotonic clock minus rank 0's, at at_ns of the rank's own clock.
CREATE TABLE clock (
    run_id    INTEGER NOT NULL,
    rank      INTEGER NOT NULL,
    at_ns     INTEGER NOT NULL,
    offset_ns INTEGER NOT NULL,
    error_ns  INTEGER NOT NULL,
    PRIMARY KEY (run_id, rank, at_ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_summary (
    run_id            INTEGER PRIMARY KEY REFERENCES run,
    iterations        INTEGER NOT NULL,
    steady_iterations INTEGER NOT NULL,
    ms_per_iteration  REAL,
    tokens_per_s      REAL,
    loss_final        REAL,
    ranks_share_cores INTEGER
) STRICT;

CREATE TABLE iteration_summary (
    run_id          INTEGER NOT NULL,
    iteration       INTEGER NOT NULL,
    ranks           INTEGER NOT NULL,
    steady          INTEGER NOT NULL,
    start_ns        INTEGER NOT NULL,
    ms              REAL NOT NULL,
    tokens          INTEGER,
    loss            REAL,
    auxiliary_loss  REAL,
    validation_loss REAL,
    slowest_rank    INTEGER,
    straggler_ms    REAL,
    imbalance       REAL,
    wait_ms         REAL NOT NULL,
    PRIMARY KEY (run_id, iteration)
) STRICT, WITHOUT ROWID;

CREATE TABLE straggler_summary (
    run_id         INTEGER NOT NULL,
    iteration      INTEGER NOT NULL,
    layer          INTEGER NOT NULL,
    phase_id       INTEGER NOT NULL REFERENCES StringIds,
    ranks          INTEGER NOT NULL,
    max_ns         INTEGER NOT NULL,
    sum_ns         INTEGER NOT NULL,
    min_ns         INTEGER NOT NULL,
    wait_ns        INTEGER NOT NULL,
    slowest_rank   INTEGER NOT NULL,
    slowest_tokens INTEGER,
    sum_tokens     INTEGER,
    PRIMARY KEY (run_id, iteration, layer, phase_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE imbalance_summary (
    run_id               INTEGER NOT NULL,
    iteration            INTEGER NOT NULL,
    layer                INTEGER NOT NULL,
    experts              INTEGER NOT NULL,
    routes               INTEGER NOT NULL,
    dropped              INTEGER NOT NULL,
    expert_max_over_mean REAL,
    rank_max_over_mean   REAL,
    effective_experts    REAL,
    dead_fraction        REAL,
    dropped_fraction     REAL,
    PRIMARY KEY (run_id, iteration, layer)
) STRICT, WITHOUT ROWID;

CREATE TABLE phase_summary (
    run_id        INTEGER NOT NULL,
    phase_id      INTEGER NOT NULL REFERENCES StringIds,
    exposed_ms    REAL NOT NULL,
    overlapped_ms REAL NOT NULL,
    wait_ms       REAL NOT NULL,
    iteration_ms  REAL,
    flops         REAL NOT NULL,
    PRIMARY KEY (run_id, phase_id)
) STRICT, WITHOUT ROWID;

---------------------------------------------------------------------------------------------------
-- Views: promised to users; columns are added, never removed or redefined
---------------------------------------------------------------------------------------------------

-- One row per run: its setting_key, which runs have in common that are compared, whatever their loads.
-- A suite's run has a digest of all that decides in fact 'setting.key'; another one its own columns.
CREATE VIEW v_setting AS
SELECT run_id,
       coalesce((SELECT value FROM fact WHERE fact.run_id = run.run_id AND name = 'setting.key'),
                printf('%s|%s|%d|%d|%s', gate, model, ranks, ranks_per_node, executor))
           AS setting_key
FROM run;

-- One row per run.
--   ranks_recorded     ranks with a usable recording; less than ranks after a crash
--   iterations         that every recorded rank completed
--   ranks_share_cores  1: there were fewer cores than ranks; its wall times are no measurement of
--                      what the system would do on cores of its own
--   clock_error_us     largest error bound of any rank's clock: nothing finer can be concluded
--   executor           measured; predicted: all its times are a model's (the same in every view)
--   unattainable       1: its system is a yardstick, no system that anyone could run
--   hosts              different ones that its ranks recorded on; NULL: not recorded
--   processor_taken    share of the training's time for which other programs had the core of the
--                      rank that lost most by it; NULL: not recorded
--   setting_key        as in v_setting
CREATE VIEW v_run AS
SELECT run.run_id, suite, suite_run, job, round, system, executor, workload, gate, model, ranks,
       nodes, ranks_per_node, iterations, iterations_wanted, run.status, run.reason, started_at,
       (SELECT count(*) FROM rank WHERE rank.run_id = run.run_id AND rank.status <> 'missing')
           AS ranks_recorded,
       ranks_share_cores, command,
       (SELECT max(clock_error_ns) FROM rank WHERE rank.run_id = run.run_id) / 1e3
           AS clock_error_us,
       EXISTS (SELECT 1 FROM fact
               WHERE fact.run_id = run.run_id AND fact.name = 'system.unattainable') AS unattainable,
       (SELECT nullif(count(DISTINCT host), 0) FROM rank WHERE rank.run_id = run.run_id) AS hosts,
       (SELECT max(lost.value / whole.value) -- CROSS JOIN: by the key, in this order
        FROM rank CROSS JOIN number AS lost USING (run_id, rank)
        CROSS JOIN number AS whole USING (run_id, rank, iteration, layer)
        WHERE rank.run_id = run.run_id AND iteration = -1 AND layer = -1
          AND lost.name_id = (SELECT id FROM StringIds WHERE value = 'processor-wait-seconds')
          AND whole.name_id = (SELECT id FROM StringIds WHERE value = 'training-seconds'))
           AS processor_taken,
       setting_key
FROM run JOIN run_summary USING (run_id) JOIN v_setting USING (run_id);

-- One row per run.
--   ms_per_iteration     median of v_iteration.ms over the steady iterations: those that every
--                        recorded rank completed, without the first tenth (rounded up, at least one)
--                        and, of a pair that was measured in slices, without interrupted ones
--   tokens_per_s         mean tokens of the steady iterations / ms_per_iteration
--   ep_run_id            the first complete run of system ep with the same suite_run, round,
--                        workload and setting_key (so gate, model, ranks, ranks_per_node, executor)
--   balanced_run_id      the first complete run of system ep with the same suite_run, round and
--                        setting_key, whose workload is 'balanced'
--   speedup_vs_ep        ms_per_iteration of ep_run_id / own; complete runs only
--   speed_vs_balanced    ms_per_iteration of balanced_run_id / own; complete runs only.  1: as fast
--                        as if every expert had got the same number of routes
--   loss_final           of the last iteration
--   max_loss_difference  largest |loss - loss of ep_run_id| / |loss of ep_run_id| over the
--                        iterations that both recorded; NULL if one of them is not a number
--   iterations_agreed    leading iterations of both whose losses differ by at most 1e-4 of ep_run_id's;
--                        one whose loss is not a number ends them; NULL without losses
--   dropped_fraction     routes dropped / routes, over all recorded iterations and layers; NULL without
--                        routes.  What a system drops it need not compute: its speed-up counts only
--                        beside this
--   unattainable         as in v_run
--   mode                 what iterations are where they are no training: prefill, decode; NULL: training
--   ms_p99               of v_iteration.ms over the steady iterations, the smallest that at least 99 %
--                        of them do not exceed; ms_per_iteration is their p50
--   bound_ms             predicted runs that drop nothing: median over all iterations of what no system
--                        takes less than that keeps the gate and sends rows as the job's exchange does,
--                        wherever it places and copies experts; NULL where it was not worked out
--   of_bound             mean of that over the mean of v_iteration.ms: 1 would be the optimum
-- With ranks_share_cores = 1 the times and ratios are those of processes that took turns.
CREATE VIEW v_speedup AS
WITH reference AS (
    SELECT run_id,
           (SELECT min(ep.run_id) FROM run AS ep JOIN v_setting AS its USING (run_id)
            WHERE ep.suite_run = run.suite_run AND ep.round = run.round AND ep.system = 'ep'
              AND ep.status = 'complete' AND ep.workload = run.workload
              AND its.setting_key = own.setting_key) AS ep_run_id,
           (SELECT min(ep.run_id) FROM run AS ep JOIN v_setting AS its USING (run_id)
            WHERE ep.suite_run = run.suite_run AND ep.round = run.round AND ep.system = 'ep'
              AND ep.status = 'complete' AND ep.workload = 'balanced'
              AND its.setting_key = own.setting_key) AS balanced_run_id,
           run.executor = 'predicted'
           AND NOT EXISTS (SELECT 1 FROM imbalance_summary
                           WHERE imbalance_summary.run_id = run.run_id AND dropped > 0) AS has_bound
    FROM run JOIN v_setting AS own USING (run_id))
SELECT run.run_id, run.suite, run.suite_run, run.job, run.round, run.workload, run.gate, run.model,
       run.executor, run.ranks, run.system, run.status, own.ms_per_iteration, own.tokens_per_s,
       CASE WHEN run.status = 'complete' THEN ep.ms_per_iteration / own.ms_per_iteration END
           AS speedup_vs_ep,
       CASE WHEN run.status = 'complete' THEN balanced.ms_per_iteration / own.ms_per_iteration END
           AS speed_vs_balanced,
       own.loss_final,
       (SELECT CASE WHEN count(*) = count(abs(a.loss - b.loss))
                    THEN max(abs(a.loss - b.loss) / abs(b.loss)) END
        FROM iteration_summary AS a JOIN iteration_summary AS b USING (iteration)
        WHERE a.run_id = run.run_id AND b.run_id = reference.ep_run_id) AS max_loss_difference,
       (SELECT CASE WHEN count(a.loss - b.loss) > 0
                    THEN coalesce(min(CASE WHEN abs(a.loss - b.loss) <= 1e-4 * abs(b.loss)
                                           THEN NULL ELSE a.iteration END) - min(a.iteration),
                                  count(*)) END
        FROM iteration_summary AS a JOIN iteration_summary AS b USING (iteration)
        WHERE a.run_id = run.run_id AND b.run_id = reference.ep_run_id) AS iterations_agreed,
       own.steady_iterations, own.ranks_share_cores, reference.ep_run_id, reference.balanced_run_id,
       (SELECT sum(dropped) * 1.0 / sum(routes) FROM imbalance_summary
        WHERE imbalance_summary.run_id = run.run_id) AS dropped_fraction,
       EXISTS (SELECT 1 FROM fact
               WHERE fact.run_id = run.run_id AND fact.name = 'system.unattainable') AS unattainable,
       (SELECT min(value) FROM fact
        WHERE fact.run_id = run.run_id AND fact.name = 'mode') AS mode,
       (SELECT min(ms) FROM (SELECT ms, row_number() OVER (ORDER BY ms) AS place
                             FROM iteration_summary
                             WHERE iteration_summary.run_id = run.run_id AND steady)
        WHERE 100 * place >= 99 * own.steady_iterations) AS ms_p99,
       CASE WHEN has_bound THEN
           (SELECT 1e3 * avg(value)
            FROM (SELECT value, row_number() OVER (ORDER BY value) AS place,
                         count(*) OVER () AS places
                  FROM iteration_summary JOIN number USING (run_id, iteration)
                  WHERE iteration_summary.run_id = run.run_id AND rank = 0 AND layer = -1
                    AND name_id = (SELECT id FROM StringIds WHERE value = 'bound-seconds'))
            WHERE 2 * place BETWEEN places AND places + 2) END AS bound_ms,
       CASE WHEN has_bound THEN
           (SELECT 1e3 * sum(value) / sum(ms)
            FROM iteration_summary JOIN number USING (run_id, iteration)
            WHERE iteration_summary.run_id = run.run_id AND rank = 0 AND layer = -1
              AND name_id = (SELECT id FROM StringIds WHERE value = 'bound-seconds'))
           END AS of_bound
FROM run
JOIN reference USING (run_id)
JOIN run_summary AS own USING (run_id)
LEFT JOIN run_summary AS ep ON ep.run_id = reference.ep_run_id
LEFT JOIN run_summary AS balanced ON balanced.run_id = reference.balanced_run_id;

-- One row per run and iteration.
--   ms            latest end - earliest start of the ranks' iterations on the common clock; the
--                 longest rank's duration if a rank's clock could not be compared
--   ranks         that completed it
--   steady        1: it counts in v_speedup.ms_per_iteration
--   tokens        over all ranks
--   slowest_rank  with the most busy time: duration minus what it waited for others
--   straggler_ms  busy time of slowest_rank minus the ranks' mean
--   imbalance     largest over mean of the ranks' computed routes (forward expert spans, all
--                 layers); NULL without routes
--   wait_ms       sum over the ranks of their waiting
CREATE VIEW v_iteration AS
SELECT run_id, iteration, ms, loss, slowest_rank, straggler_ms, imbalance, ranks, steady,
       start_ns / 1e6 AS start_ms, tokens, auxiliary_loss, validation_loss, wait_ms,
       (SELECT executor FROM run WHERE run.run_id = iteration_summary.run_id) AS executor
FROM iteration_summary;

-- One row per run, iteration, layer and phase (forward and backward together; the phase
-- 'iteration' is v_iteration's).  Per rank, busy time is that of the stream compute minus waiting.
--   max_ms, mean_ms, min_ms  busy time over the ranks that recorded the phase; of the phase expert
--                            also over those that recorded others of the layer: they had no tokens,
--                            and took no time for them
--   wait_ms                  sum over the ranks of their waiting in this phase
--   straggler_ms             max_ms - mean_ms
--   lost_ms                  sum over the ranks of max_ms - own: what the others would have to wait
--                            if they met right after this phase
--   slowest_rank             the rank of max_ms, the lowest of equals
--   slowest_tokens           what slowest_rank worked on (forward, or backward if only that was
--                            recorded); NULL: it does not say, 0: none
--   mean_tokens              the ranks' mean; NULL: one of them does not say
CREATE VIEW v_straggler AS
SELECT run_id, iteration, layer, StringIds.value AS phase, max_ns / 1e6 AS max_ms,
       sum_ns / 1e6 / ranks AS mean_ms, min_ns / 1e6 AS min_ms, wait_ns / 1e6 AS wait_ms,
       slowest_rank, slowest_tokens, sum_tokens * 1.0 / ranks AS mean_tokens, ranks,
       max_ns / 1e6 - sum_ns / 1e6 / ranks AS straggler_ms,
       (max_ns * ranks - sum_ns) / 1e6 AS lost_ms,
       (SELECT executor FROM run WHERE run.run_id = straggler_summary.run_id) AS executor
FROM straggler_summary JOIN StringIds ON StringIds.id = phase_id;

-- One row per run, iteration and layer: how uneven the routes were, over the whole batch, before
-- any are dropped.  All but experts, routes and dropped are NULL when there was no route.
--   expert_max_over_mean  routes of the fullest expert / mean over all experts
--   rank_max_over_mean    routes computed by the fullest rank / mean over the ranks
--   effective_experts     exp(entropy of the experts' shares), 1 .. experts
--   dead_fraction         share of experts without a route
--   dropped_fraction      share of routes dropped
CREATE VIEW v_imbalance AS
SELECT run_id, iteration, layer, expert_max_over_mean, rank_max_over_mean, effective_experts,
       dead_fraction, dropped_fraction, experts, routes, dropped,
       (SELECT executor FROM run WHERE run.run_id = imbalance_summary.run_id) AS executor
FROM imbalance_summary;

-- One row per run and phase (without 'iteration', which encloses the others), summed over all
-- iterations and layers, mean over the recorded ranks.  Iterations that a rank did not complete
-- are left out of it; those that a time slice interrupted are taken as the mean of the others.
--   exposed_ms     the rank's thread spent it (stream compute), waiting included
--   overlapped_ms  operations were in flight (stream comm) beyond the exposed part: per rank,
--                  iteration and layer max(0, in flight - exposed)
--   total_ms       exposed_ms + overlapped_ms
--   share          exposed_ms / iteration_ms
--   iteration_ms   the whole iterations; what the exposed times leave of it belongs to no phase;
--                  NULL (and share) for validate and checkpoint, which lie between iterations
--   wait_ms        of exposed_ms blocked on other ranks: until they had come, and by transfers
--   flops          sum over all ranks
CREATE VIEW v_phase AS
SELECT run_id, StringIds.value AS phase, exposed_ms + overlapped_ms AS total_ms,
       exposed_ms / iteration_ms AS share, overlapped_ms, exposed_ms, wait_ms,
       iteration_ms, flops,
       (SELECT executor FROM run WHERE run.run_id = phase_summary.run_id) AS executor
FROM phase_summary JOIN StringIds ON StringIds.id = phase_id;

-- One row per run that had a target: training that ends once the mean loss of the last
-- target_window iterations is at or below target_loss.
--   iterations_to_target  iterations until then, the last of them included; NULL: not reached
--   seconds_to_target     sum of v_iteration.ms over them; NULL: not reached, or interrupted by time
--                         slices (fact pairs.slice)
--   iterations            that every recorded rank completed
--   loss_final            of the last iteration
--   routes, dropped       over all recorded iterations and layers
--   dropped_fraction      dropped / routes; NULL without routes
CREATE VIEW v_convergence AS
WITH target AS (
    SELECT run_id,
           (SELECT value FROM number
            WHERE number.run_id = run.run_id AND rank = 0 AND iteration = -1 AND layer = -1
              AND name_id = (SELECT id FROM StringIds WHERE value = 'target-loss')) AS loss,
           (SELECT value FROM number
            WHERE number.run_id = run.run_id AND rank = 0 AND iteration = -1 AND layer = -1
              AND name_id = (SELECT id FROM StringIds WHERE value = 'target-window')) AS window,
           (SELECT value FROM number
            WHERE number.run_id = run.run_id AND rank = 0 AND iteration = -1 AND layer = -1
              AND name_id = (SELECT id FROM StringIds WHERE value = 'iterations-to-target'))
               AS reached
    FROM run)
SELECT run.run_id, suite, suite_run, job, round, system, workload, gate, model, executor, ranks,
       status, target.loss AS target_loss, CAST(target.window AS INTEGER) AS target_window,
       CAST(target.reached AS INTEGER) AS iterations_to_target,
       CASE WHEN NOT EXISTS (SELECT 1 FROM fact WHERE fact.run_id = run.run_id
                             AND fact.name = 'pairs.slice')
            THEN (SELECT sum(ms) / 1e3 FROM iteration_summary
                  WHERE iteration_summary.run_id = run.run_id AND iteration < target.reached) END
           AS seconds_to_target,
       iterations, loss_final,
       (SELECT sum(routes) FROM imbalance_summary
        WHERE imbalance_summary.run_id = run.run_id) AS routes,
       (SELECT sum(dropped) FROM imbalance_summary
        WHERE imbalance_summary.run_id = run.run_id) AS dropped,
       (SELECT sum(dropped) * 1.0 / sum(routes) FROM imbalance_summary
        WHERE imbalance_summary.run_id = run.run_id) AS dropped_fraction
FROM run JOIN target USING (run_id) JOIN run_summary USING (run_id)
WHERE target.loss IS NOT NULL;

-- Spans with their names.  A condition on run_id (and rank) reads only those rows.
CREATE VIEW v_span AS
SELECT rank.run_id, rank.rank, stream.value AS stream, iteration, layer, phase.value AS phase,
       CASE direction WHEN 0 THEN 'forward' WHEN 1 THEN 'backward' END AS direction,
       start_ns, end_ns, wait_ns, cpu_ns, tokens, bytes, flops, span_id
FROM rank CROSS JOIN span ON span_id BETWEEN first_span AND last_span
CROSS JOIN StringIds AS stream ON stream.id = stream_id
CROSS JOIN StringIds AS phase ON phase.id = phase_id;

-- Loads with one row per expert.
CREATE VIEW v_load AS
SELECT run_id, iteration, layer, rank, routes.key AS expert, routes.value AS routes,
       coalesce(json_extract(dropped, '$[' || routes.key || ']'), 0) AS dropped
FROM load, json_each(load.routes) AS routes;

-- Numbers with their names.
CREATE VIEW v_number AS
SELECT run_id, iteration, layer, StringIds.value AS name, number.value, rank
FROM number JOIN StringIds ON StringIds.id = name_id;

-- One row per run and rank: how its recording ended, and how far its clock can be trusted.
CREATE VIEW v_rank AS
SELECT run_id, rank, status, reason, node, host, pid, clock, clock_error_ns / 1e3 AS clock_error_us,
       last_span - first_span + 1 AS spans, unread_bytes
FROM rank;

-- One row per run, name and value: texts about the run, and the lowest rank that recorded it.
CREATE VIEW v_fact AS
SELECT run_id, name, value, min(rank) AS rank, count(*) AS ranks
FROM fact GROUP BY run_id, name, value;

-- Ranges and marks of annotated programs (table NVTX_EVENTS) with their names.
--   kind     pushed, started, mark
--   ms       NULL: a mark, or a range that was open when its process ended
--   payload  JSON array of one object for each payload with a schema
CREATE VIEW v_nvtx AS
SELECT event.run_id, event.rank, domain_name.value AS domain,
       coalesce(event.text, name.value) AS name,
       CASE event.eventType WHEN 34 THEN 'mark' WHEN 59 THEN 'pushed' ELSE 'started' END AS kind,
       event.start AS start_ns, event."end" AS end_ns, (event."end" - event.start) / 1e6 AS ms,
       event.globalTid / 0x1000000 % 0x1000000 AS pid, event.globalTid % 0x1000000 AS tid,
       event.level, event.category, event.jsonText AS payload,
       coalesce(event.uint64Value, event.int64Value, event.doubleValue, event.uint32Value,
                event.int32Value, event.floatValue) AS value
FROM NVTX_EVENTS AS event
LEFT JOIN StringIds AS name ON name.id = event.textId
LEFT JOIN NVTX_EVENTS AS domain ON domain.eventType = 75 AND domain.run_id = event.run_id
    AND domain.rank = event.rank AND domain.domainId = event.domainId
LEFT JOIN StringIds AS domain_name ON domain_name.id = domain.textId
WHERE event.eventType IN (34, 59, 60);

-- Sums of GPU work are total(), which one damaged record can't make an error as it does sum().

-- GPU work per span, as far as it was recorded: one row per run, rank and span that launched any,
-- and one (span_id NULL) for what was launched outside all spans.
--   gpu_ms        some of it ran: the union of its times, not their sum over streams
--   kernel_ms, copy_ms, set_ms  sums over streams
--   first_ms      from the span's start to that of its first piece
--   after_ms      from the span's end to that of its last piece; negative: all was over before
--   untimed       pieces whose times CUPTI did not know; they are in no time above
CREATE VIEW v_gpu AS
WITH work AS (
    SELECT run_id, rank, span_id, start, "end", 0 AS kind, 0 AS bytes
    FROM CUPTI_ACTIVITY_KIND_KERNEL
    UNION ALL
    SELECT run_id, rank, span_id, start, "end", 1, bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL
    SELECT run_id, rank, span_id, start, "end", 2, bytes FROM CUPTI_ACTIVITY_KIND_MEMSET),
covered AS (
    SELECT *, max("end") OVER (PARTITION BY run_id, rank, span_id ORDER BY start, "end"
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until
    FROM work),
summed AS (
    SELECT run_id, rank, span_id, count(*) AS pieces, sum(kind = 0) AS kernels,
           sum(kind = 1) AS copies, sum(kind = 2) AS sets,
           total(max(0, "end" - max(start, coalesce(until, start)))) AS busy,
           total(CASE kind WHEN 0 THEN "end" - start END) AS kernel,
           total(CASE kind WHEN 1 THEN "end" - start END) AS copy,
           total(CASE kind WHEN 2 THEN "end" - start END) AS "set",
           CAST(total(CASE kind WHEN 1 THEN bytes END) AS INTEGER) AS copied,
           min(start) AS first, max("end") AS last, sum(start IS NULL) AS untimed
    FROM covered GROUP BY run_id, rank, span_id)
SELECT summed.run_id, summed.rank, summed.span_id, iteration, layer, phase.value AS phase,
       CASE direction WHEN 0 THEN 'forward' WHEN 1 THEN 'backward' END AS direction,
       (span.end_ns - span.start_ns) / 1e6 AS span_ms, busy / 1e6 AS gpu_ms,
       kernel / 1e6 AS kernel_ms, copy / 1e6 AS copy_ms, "set" / 1e6 AS set_ms, kernels, copies,
       sets, copied AS copied_bytes, (first - span.start_ns) / 1e6 AS first_ms,
       (last - span.end_ns) / 1e6 AS after_ms, untimed
FROM summed LEFT JOIN span ON span.span_id = summed.span_id
LEFT JOIN StringIds AS phase ON phase.id = span.phase_id;

-- NCCL's operations per rank: a collective, or all sends and receives of one group call, which is
-- what an all-to-all is made of.
--   function     AllReduce and so on; 'pairs' for a group of sends and receives
--   ms           on the GPU, from the first channel's start to the last one's end: waiting included
--   transfer_ms  the least ms of any rank: the last to arrive waits for nobody.  NULL unless each
--                rank of the communicator has its time
--   wait_ms      ms - transfer_ms: waiting for ranks that came later
--   queue_ms     the host took to queue it
--   untimed      operations whose channels have no or not all times
-- Needs no clocks in common: only durations are compared.
CREATE VIEW v_collective AS
WITH operation AS (
    SELECT run_id, rank, communicator, communicator_rank, communicator_size, is_pair,
           CASE is_pair WHEN 1 THEN group_ordinal ELSE sequence END AS ordinal,
           CASE is_pair WHEN 1 THEN 'pairs' ELSE StringIds.value END AS function,
           CASE WHEN count(bytes) > 0 THEN CAST(total(bytes) AS INTEGER) END AS bytes,
           count(*) AS operations, min(span_id) AS span_id,
           min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           CASE WHEN count(*) = count(start_ns) THEN max(end_ns) - min(start_ns) END AS length,
           max(queue_end_ns) - min(queue_start_ns) AS queued,
           sum(start_ns IS NULL OR timed_channels < channels) AS untimed
    FROM collective LEFT JOIN StringIds ON StringIds.id = function_id
    GROUP BY run_id, rank, communicator, communicator_rank, is_pair, ordinal, function),
beside AS (
    SELECT *, min(length) OVER other AS least, count(length) OVER other AS timed
    FROM operation
    WINDOW other AS (PARTITION BY run_id, communicator, is_pair, function, ordinal))
SELECT run_id, rank, communicator, communicator_rank, communicator_size, function, ordinal,
       operations, bytes, start_ns, end_ns, length / 1e6 AS ms,
       CASE WHEN timed = communicator_size AND ordinal > 0 THEN least / 1e6 END AS transfer_ms,
       CASE WHEN timed = communicator_size AND ordinal > 0 THEN (length - least) / 1e6 END
           AS wait_ms,
       queued / 1e6 AS queue_ms, untimed, span_id
FROM beside;
