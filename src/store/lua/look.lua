-- What became of a flight: the safety re-read of a waiting process, and how it fetches a frame too large for a push.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the flight's result
-- ARGV[1]  flight id
-- ARGV[2]  the asker's process id, registered anew when the flight goes on
-- ARGV[3]  number of this question, as in claim.lua
--
-- Result, by its first element:
--   'S', frame          settled; the frame is 'r' or 'u' when the flight was released (release.lua)
--   'F', lease left ms  in flight
--   'G'                 gone without a result; so is a flight whose lease has passed, whether it holds the key or not

local result = redis.call('GET', KEYS[2])
if result then
  return { 'S', result }
end
local record = redis.call('HMGET', KEYS[1], 's', 'f', 'l')
if record[2] ~= ARGV[1] then
  return { 'G' }
end
if record[1] ~= 'f' then
  return { 'S', redis.call('HGET', KEYS[1], 'b') }
end
local t = redis.call('TIME')
local leaseLeft = record[3] - (t[1] * 1000000 + t[2])
if leaseLeft <= 0 then
  return { 'G' }
end
-- For a server that is full, as in renew.lua.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'w:' .. ARGV[2], ARGV[3])
return { 'F', math.floor(leaseLeft / 1000) }
