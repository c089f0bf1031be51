UPDATE job
SET state = 'cancelled', holder = NULL, lease_until = NULL, updated = :now
WHERE id = :id AND state IN ('queued', 'leased')
