SELECT * FROM tenant WHERE name = :tenant
