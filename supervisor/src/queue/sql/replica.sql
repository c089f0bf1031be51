-- What a replica has beside the tables: which jobs a transaction changed, and whether it changed the tenants. `ready`
-- is each replica's own business: it follows from `not_before` and the time.
CREATE TEMP TABLE changed (id INTEGER PRIMARY KEY);
CREATE TEMP TABLE changed_terms (name TEXT PRIMARY KEY);

-- No OR IGNORE below: inside a trigger, what a statement says about conflicts goes before what the trigger says.
CREATE TEMP TRIGGER note_added AFTER INSERT ON main.job BEGIN
    INSERT INTO changed SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM changed WHERE id = new.id);
END;
CREATE TEMP TRIGGER note_moved AFTER UPDATE OF
    priority, state, not_before, deliveries, failures, crashes, losses, token, holder, lease_until, updated, reason,
    report ON main.job
BEGIN
    INSERT INTO changed SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM changed WHERE id = new.id);
END;
CREATE TEMP TRIGGER note_gone AFTER DELETE ON main.job BEGIN
    INSERT INTO changed SELECT old.id WHERE NOT EXISTS (SELECT 1 FROM changed WHERE id = old.id);
END;
CREATE TEMP TRIGGER note_terms AFTER UPDATE OF configured, guaranteed, weight, max_queued, max_running, device_bytes
    ON main.tenant
BEGIN
    INSERT INTO changed_terms SELECT new.name WHERE NOT EXISTS (SELECT 1 FROM changed_terms WHERE name = new.name);
END;
CREATE TEMP TRIGGER note_tenant AFTER INSERT ON main.tenant BEGIN
    INSERT INTO changed_terms SELECT new.name WHERE NOT EXISTS (SELECT 1 FROM changed_terms WHERE name = new.name);
END;
