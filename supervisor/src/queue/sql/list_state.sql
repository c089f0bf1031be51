SELECT * FROM job WHERE state = :state AND id > :after ORDER BY id LIMIT :most
