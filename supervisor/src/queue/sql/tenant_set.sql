-- A tenant as the configuration has it; a new one begins where the others are.
INSERT INTO tenant (name, configured, guaranteed, weight, max_queued, max_running, device_bytes, pass)
VALUES (:name, 1, :guaranteed, :weight, :max_queued, :max_running, :device_bytes, (SELECT clock FROM share))
ON CONFLICT (name) DO UPDATE
SET configured = 1, guaranteed = :guaranteed, weight = :weight,
    max_queued = :max_queued, max_running = :max_running, device_bytes = :device_bytes
