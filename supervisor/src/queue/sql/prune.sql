-- Retention: what is over and was not touched for long.
DELETE FROM job
WHERE (state IN ('done', 'cancelled') AND updated <= :done) OR (state = 'dead' AND updated <= :dead)
