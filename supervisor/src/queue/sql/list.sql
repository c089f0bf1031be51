SELECT * FROM job WHERE id > :after ORDER BY id LIMIT :most
