-- The tenant's due job of the highest priority, the oldest of several. Left to itself the planner takes the index of
-- states and sorts every queued job.
SELECT id, priority, need FROM job INDEXED BY job_ready
WHERE tenant = :tenant AND state = 'queued' AND ready = 1
ORDER BY priority DESC, id
LIMIT 1
