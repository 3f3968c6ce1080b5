-- Reads pieces of a response under way, says how far the process has come, and tells whether more can come.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the pieces of the flight (stream); ids are <index + 1>-0
-- KEYS[3]  who reads them (hash): process -> index of the piece that it wants next; '@' -> sign of life beyond the flight
-- ARGV[1]  flight id
-- ARGV[2]  index of the piece that the process wants next; '': it reads no more
-- ARGV[3]  how many at most
-- ARGV[4]  the process
-- ARGV[5]  '1' when it is known to have been among the readers, else ''
-- ARGV[6]  how long it is remembered, in ms
-- ARGV[7]  age at which a sign of life is none any more, in ms
--
-- Result: { state, lost, pieces as XRANGE gives them }, nil to who reads no more. State: 'i' the flight is up, 'b' it is
-- over and its response goes on, 'o' nothing goes on. Lost: 1 when what the process wants next is gone.

local flight, process = ARGV[1], ARGV[4]
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local record = redis.call('HMGET', KEYS[1], 's', 'f', 'l')
local up = record[1] == 'f' and record[2] == flight and tonumber(record[3]) > now

if ARGV[2] == '' then
  redis.call('HDEL', KEYS[3], process)
  local left = redis.call('HLEN', KEYS[3]) - redis.call('HEXISTS', KEYS[3], '@')
  if left == 0 and not up then
    redis.call('UNLINK', KEYS[2], KEYS[3])
  end
  return nil
end

local sign = tonumber(redis.call('HGET', KEYS[3], '@') or 0)
local state = up and 'i' or (now - sign < ARGV[7] * 1000) and 'b' or 'o'
local exists = redis.call('EXISTS', KEYS[2]) == 1
local wanted = tonumber(ARGV[2])
local lost = not exists and wanted > 0
if exists then
  local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  lost = oldest ~= nil and tonumber(string.match(oldest[1], '^%d+')) > wanted + 1
end
-- Given up, for it held up the others.
if state == 'b' and ARGV[5] == '1' and redis.call('HEXISTS', KEYS[3], process) == 0 then
  lost = true
end
if lost then
  return { state, 1, {} }
end
-- The first write is for a server that is full, as in renew.lua.
-- Before there is a piece as well: the first may be the last for which the flight's own followers are known.
redis.call('HDEL', KEYS[3], '')
redis.call('HSET', KEYS[3], process, wanted)
redis.call('PEXPIRE', KEYS[3], ARGV[6])
if not exists then
  return { state, 0, {} }
end
redis.call('PEXPIRE', KEYS[2], ARGV[6])
return { state, 0, redis.call('XRANGE', KEYS[2], string.format('%.0f-0', wanted + 1), '+', 'COUNT', ARGV[3]) }
