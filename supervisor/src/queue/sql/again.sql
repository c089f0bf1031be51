-- Back into the queue, due later.
UPDATE job
SET state = 'queued', ready = :not_before <= :now, holder = NULL, lease_until = NULL, not_before = :not_before,
    updated = :now, failures = :failures, crashes = :crashes, losses = :losses, reason = :reason
WHERE id = :id
