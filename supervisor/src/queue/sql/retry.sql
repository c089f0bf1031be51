-- A second life: nothing that happened counts, but tokens go on.
UPDATE job
SET state = 'queued', ready = 1, not_before = :now, updated = :now, deliveries = 0, failures = 0, crashes = 0,
    losses = 0, reason = NULL, report = NULL
WHERE id = :id AND state IN ('dead', 'cancelled')
