-- The due job of the highest priority, the oldest of several, under a new token. Left to itself the planner takes
-- the index of states and sorts every queued job for each claim.
UPDATE job
SET state = 'leased', token = token + 1, deliveries = deliveries + 1,
    holder = :holder, lease_until = :now + :lease, updated = :now
WHERE id = (
    SELECT id FROM job INDEXED BY job_queued
    WHERE state = 'queued' AND not_before <= :now
    ORDER BY priority DESC, id
    LIMIT 1
)
RETURNING *
