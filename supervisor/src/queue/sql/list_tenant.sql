SELECT * FROM job WHERE tenant = :tenant AND id > :after ORDER BY id LIMIT :most
