-- Tenants that are named by neither the configuration nor any job.
DELETE FROM tenant WHERE configured = 0 AND NOT EXISTS (SELECT 1 FROM job WHERE job.tenant = tenant.name)
