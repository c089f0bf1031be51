-- Whether a claim might find anything: read without taking the write lock, so that idle slots disturb nobody.
SELECT EXISTS (
        SELECT 1 FROM tenant
        WHERE queued > 0 AND (max_running IS NULL OR leased < max_running) AND EXISTS (
            SELECT 1 FROM job INDEXED BY job_ready WHERE job.tenant = tenant.name AND state = 'queued' AND ready = 1
        )
    )
    OR EXISTS (SELECT 1 FROM job INDEXED BY job_waiting WHERE state = 'queued' AND ready = 0 AND not_before <= :now)
    OR EXISTS (SELECT 1 FROM job INDEXED BY job_leased WHERE state = 'leased' AND lease_until <= :now)
