-- The queue's first form. Times are milliseconds since 1970; `token` numbers the leases of a job and never goes back.
CREATE TABLE job (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    key         TEXT    NOT NULL UNIQUE,
    name        TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('queued', 'leased', 'done', 'dead', 'cancelled')),
    not_before  INTEGER NOT NULL,
    deliveries  INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    crashes     INTEGER NOT NULL DEFAULT 0,
    losses      INTEGER NOT NULL DEFAULT 0,
    token       INTEGER NOT NULL DEFAULT 0,
    holder      TEXT,
    lease_until INTEGER,
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    reason      TEXT,
    report      TEXT,
    CHECK ((state = 'leased') = (lease_until IS NOT NULL)),
    CHECK ((state = 'leased') = (holder IS NOT NULL)),
    CHECK (state <> 'dead' OR reason IS NOT NULL)
) STRICT;

-- What a claim reads: never the table, only as much of this as is not due yet.
CREATE INDEX job_queued ON job (priority DESC, id, not_before) WHERE state = 'queued';
CREATE INDEX job_leased ON job (lease_until) WHERE state = 'leased';
-- What lists and counts of one state read: it holds the id as well.
CREATE INDEX job_state ON job (state);
