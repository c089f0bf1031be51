UPDATE job
SET state = :state, ready = 0, not_before = :not_before, deliveries = :deliveries, failures = :failures,
    crashes = :crashes, losses = :losses, token = :token, holder = :holder, lease_until = :lease_until,
    updated = :updated, reason = :reason, report = :report
WHERE id = :id
