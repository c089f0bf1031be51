INSERT INTO job (key, name, payload, priority, state, not_before, created, updated)
VALUES (:key, :name, :payload, :priority, 'queued', :now + :delay, :now, :now)
RETURNING id
