UPDATE job
SET state = 'done', holder = NULL, lease_until = NULL, updated = :now, reason = NULL, report = :report
WHERE id = :id AND token = :token AND state = 'leased'
