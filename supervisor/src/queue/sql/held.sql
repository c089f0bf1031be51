-- The job, if this lease holds it.
SELECT * FROM job WHERE id = :id AND token = :token AND state = 'leased'
