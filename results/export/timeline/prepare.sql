-- What is kept while rank after rank is drawn, beside the database.
CREATE TEMP TABLE moeperf_exchange ( -- turn: how many alike the rank has had before
    iteration INTEGER, layer INTEGER, phase_id INTEGER, direction INTEGER, rank INTEGER, turn INTEGER,
    tid INTEGER, start_ns INTEGER, until INTEGER,
    PRIMARY KEY (iteration, layer, phase_id, direction, rank, turn)) WITHOUT ROWID;
CREATE TEMP TABLE moeperf_launch ( -- of the rank at hand; a span as process -1
    process INTEGER, number INTEGER, tid INTEGER, at_ns INTEGER,
    PRIMARY KEY (process, number)) WITHOUT ROWID;
-- How long a collective waited comes of all its ranks, so that they are put side by side once.
CREATE TEMP TABLE moeperf_collective (
    rank INTEGER, communicator, communicator_rank, communicator_size, function, ordinal, operations,
    bytes, start_ns, end_ns, wait_ms, transfer_ms, span_id INTEGER);
CREATE INDEX temp.moeperf_collective_by_rank ON moeperf_collective (rank);
