-- Tenants that may have one more job in hand.
SELECT * FROM tenant WHERE queued > 0 AND (max_running IS NULL OR leased < max_running)
