-- A job that this replica has not seen. As a queued one, so that what is counted of its tenant is right once it is moved.
INSERT INTO job (id, key, tenant, name, payload, priority, need, state, ready, not_before, created, updated)
VALUES (:id, :key, :tenant, :name, :payload, :priority, :need, 'queued', 0, :not_before, :created, :created)
