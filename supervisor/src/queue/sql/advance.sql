UPDATE tenant SET pass = :pass WHERE name = :tenant
