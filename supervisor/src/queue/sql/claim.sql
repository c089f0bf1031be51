-- The lease, under a new token.
UPDATE job
SET state = 'leased', token = token + 1, deliveries = deliveries + 1,
    holder = :holder, lease_until = :now + :lease, updated = :now
WHERE id = :id
RETURNING *
