-- Tenants. A job belongs to one; its row holds the terms it has, what it has in the queue, and how far it has come.
CREATE TABLE tenant (
    name         TEXT    PRIMARY KEY,
    -- Whether the configuration names it. One that it no longer names stays for as long as it has jobs.
    configured   INTEGER NOT NULL CHECK (configured IN (0, 1)),
    guaranteed   INTEGER NOT NULL CHECK (guaranteed IN (0, 1)),
    weight       INTEGER NOT NULL CHECK (weight > 0),
    -- The caps; without one there is none.
    max_queued   INTEGER,
    max_running  INTEGER,
    device_bytes INTEGER,
    -- Kept by the triggers below.
    queued       INTEGER NOT NULL DEFAULT 0 CHECK (queued >= 0),
    leased       INTEGER NOT NULL DEFAULT 0 CHECK (leased >= 0),
    need         INTEGER NOT NULL DEFAULT 0 CHECK (need >= 0),
    -- Virtual time: grows with each claim by the inverse of the weight.
    pass         INTEGER NOT NULL
) STRICT;

-- The queue's virtual time, which an idle tenant's own is raised to; one row.
CREATE TABLE share (clock INTEGER NOT NULL) STRICT;
INSERT INTO share VALUES (0);

INSERT INTO tenant (name, configured, guaranteed, weight, queued, leased, pass)
SELECT 'default', 1, 0, 1,
    (SELECT count(*) FROM job WHERE state = 'queued'), (SELECT count(*) FROM job WHERE state = 'leased'), 0;

ALTER TABLE job ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
-- The most device memory that the job can need, in bytes.
ALTER TABLE job ADD COLUMN need INTEGER NOT NULL DEFAULT 0 CHECK (need >= 0);
-- 1 once its time has come: so a claim never reads what has to wait. All jobs of the first form are looked at again.
ALTER TABLE job ADD COLUMN ready INTEGER NOT NULL DEFAULT 0 CHECK (ready IN (0, 1));

DROP INDEX job_queued;
-- What a claim reads of each tenant: one entry, never the table.
CREATE INDEX job_ready ON job (tenant, priority DESC, id, need) WHERE state = 'queued' AND ready = 1;
CREATE INDEX job_waiting ON job (not_before) WHERE state = 'queued' AND ready = 0;
-- What lists of one tenant read, and what tells whether it has any job.
CREATE INDEX job_tenant ON job (tenant, state);
-- What retention reads.
CREATE INDEX job_over ON job (state, updated) WHERE state IN ('done', 'cancelled', 'dead');

CREATE TRIGGER job_added AFTER INSERT ON job BEGIN
    UPDATE tenant SET queued = queued + 1 WHERE name = new.tenant;
END;
CREATE TRIGGER job_moved AFTER UPDATE OF state ON job WHEN old.state <> new.state BEGIN
    UPDATE tenant
    SET queued = queued + (new.state = 'queued') - (old.state = 'queued'),
        leased = leased + (new.state = 'leased') - (old.state = 'leased'),
        need = need + new.need * ((new.state = 'leased') - (old.state = 'leased'))
    WHERE name = new.tenant;
END;
