SELECT * FROM job INDEXED BY job_tenant
WHERE tenant = :tenant AND state = :state AND id > :after ORDER BY id LIMIT :most
