INSERT INTO job (key, tenant, name, payload, priority, need, state, ready, not_before, created, updated)
VALUES (:key, :tenant, :name, :payload, :priority, :need, 'queued', :delay = 0, :now + :delay, :now, :now)
RETURNING id
