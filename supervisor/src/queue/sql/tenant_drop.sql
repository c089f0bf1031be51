-- What the configuration no longer names: jobs that are left are worked on, under the plainest terms.
UPDATE tenant
SET configured = 0, guaranteed = 0, weight = 1, max_queued = NULL, max_running = NULL, device_bytes = NULL
