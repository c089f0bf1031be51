-- Retention: what is over and was not touched for long, so many at a time that nobody else waits long for the lock.
DELETE FROM job WHERE id IN (
    SELECT id FROM job INDEXED BY job_over
    WHERE state = :state AND updated <= :until AND state IN ('done', 'cancelled', 'dead')
    LIMIT 1000
)
