-- The dead letter.
UPDATE job
SET state = 'dead', holder = NULL, lease_until = NULL, updated = :now,
    failures = :failures, crashes = :crashes, losses = :losses, reason = :reason, report = :report
WHERE id = :id
