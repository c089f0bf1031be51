-- As the migrations leave a queue.
DELETE FROM job;
DELETE FROM tenant;
DELETE FROM sqlite_sequence;
UPDATE share SET clock = 0;
INSERT INTO tenant (name, configured, guaranteed, weight, pass) VALUES ('default', 1, 0, 1, 0);
