-- Extends the lease of a flight that still has its key.
--
-- KEYS[1]  the key's record
-- ARGV[1]  flight id
-- ARGV[2]  fence
-- ARGV[3]  lease in ms, from now
--
-- Result: 1 held and extended, 0 lost and nothing changed.

local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n')
if record[1] ~= 'f' or record[2] ~= ARGV[1] or record[3] ~= ARGV[2] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
