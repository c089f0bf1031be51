-- Jobs whose time has come.
UPDATE job INDEXED BY job_waiting SET ready = 1 WHERE state = 'queued' AND ready = 0 AND not_before <= :now
