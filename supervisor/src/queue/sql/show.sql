SELECT * FROM job WHERE id = :id
