-- Whether a claim would find anything: read without taking the write lock, so that idle slots disturb nobody.
SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_queued WHERE state = 'queued' AND not_before <= :now)
    OR EXISTS (SELECT 1 FROM job INDEXED BY job_leased WHERE state = 'leased' AND lease_until <= :now)
