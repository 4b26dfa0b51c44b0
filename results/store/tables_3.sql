-- What schema version 3 changes of schema.sql: a run's status may be refused, which is of a job that
-- its system can't do.  It has a reason and no ranks.  The table is made anew, as SQLite changes no
-- check of one that is there.
CREATE TEMPORARY TABLE run_before AS SELECT * FROM run;
DROP TABLE run;
CREATE TABLE run (
    run_id            INTEGER PRIMARY KEY,
    suite             TEXT NOT NULL,
    suite_run         TEXT NOT NULL,
    job               TEXT NOT NULL,
    round             INTEGER NOT NULL,
    system            TEXT NOT NULL,
    executor          TEXT NOT NULL,
    workload          TEXT NOT NULL,
    gate              TEXT,
    model             TEXT,
    ranks             INTEGER NOT NULL,
    nodes             INTEGER NOT NULL,
    ranks_per_node    INTEGER NOT NULL,
    status            TEXT NOT NULL
        CHECK (status IN ('complete', 'failed', 'interrupted', 'timeout', 'refused')),
    reason            TEXT,
    started_at        TEXT NOT NULL,
    iterations_wanted INTEGER NOT NULL,
    origin_ns         INTEGER,
    command           TEXT,
    suite_text        TEXT,
    job_text          TEXT
) STRICT;
INSERT INTO run SELECT * FROM run_before;
DROP TABLE run_before;
CREATE INDEX run_by_suite_run ON run (suite_run, round);
