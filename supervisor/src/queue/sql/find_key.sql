-- Asked before anything is inserted: a conflict would use a number up.
SELECT id, state FROM job WHERE key = :key
