SELECT * FROM tenant ORDER BY name
