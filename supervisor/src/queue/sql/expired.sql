-- Jobs whose lease ran out by :until.
SELECT * FROM job INDEXED BY job_leased WHERE state = 'leased' AND lease_until <= :until ORDER BY id
