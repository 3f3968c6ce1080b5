-- Extends the lease of a flight that still has its key.
--
-- KEYS[1]  the key's record
-- ARGV[1]  flight id
-- ARGV[2]  fence
-- ARGV[3]  lease in ms, from now
--
-- Result: 1 held and extended, 0 lost and nothing changed. A lease that has passed is lost, even if the record is still
-- there because it holds the key.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'l', 'h')
if record[1] ~= 'f' or record[2] ~= ARGV[1] or record[3] ~= ARGV[2] or tonumber(record[4]) <= now then
  return 0
end
-- In this order: a server that is full looks at its bound before a script's first write, if that is one that takes room.
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[3] + record[5]))
redis.call('HSET', KEYS[1], 'l', string.format('%.0f', now + ARGV[3] * 1000))
return 1
