-- What schema version 4 adds to schema.sql: the experts of every token, where a run records them.  A
-- row is a part of a rank's choices in a layer, from number `first` on: token by token, top_k each,
-- little-endian numbers of `width` bytes (2 or 4), -1 less its expert where a choice is not taken.
CREATE TABLE choice (
    run_id    INTEGER NOT NULL,
    rank      INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    layer     INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    top_k     INTEGER NOT NULL,
    width     INTEGER NOT NULL,
    experts   BLOB NOT NULL,
    PRIMARY KEY (run_id, rank, iteration, layer, first)
) STRICT, WITHOUT ROWID;
