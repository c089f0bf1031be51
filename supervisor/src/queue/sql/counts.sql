-- The oldest is the one of the lowest number, so that only the index of states is read.
SELECT state, jobs, (SELECT created FROM job WHERE id = first)
FROM (SELECT state, count(*) AS jobs, min(id) AS first FROM job GROUP BY state)
