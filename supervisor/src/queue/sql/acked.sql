-- Whether this very lease is the one that finished the job.
SELECT EXISTS (SELECT 1 FROM job WHERE id = :id AND token = :token AND state = 'done')
