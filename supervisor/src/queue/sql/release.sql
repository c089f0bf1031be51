-- Back into the queue as if it had not been claimed; the token stays spent.
UPDATE job
SET state = 'queued', holder = NULL, lease_until = NULL, deliveries = deliveries - 1, updated = :now
WHERE id = :id AND token = :token AND state = 'leased'
