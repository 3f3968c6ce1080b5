-- Reads pieces of a response under way, and says how far the process has come.
--
-- KEYS[1]  the pieces of the flight (stream); ids are <index + 1>-0
-- KEYS[2]  who reads them (hash): process -> index of the piece that it wants next
-- ARGV[1]  index of the piece that the process wants next
-- ARGV[2]  how many at most
-- ARGV[3]  the process
-- ARGV[4]  '1' when it has been among the readers, else ''
-- ARGV[5]  how long it is remembered, in ms
--
-- Result: the pieces, as XRANGE gives them; nil when it comes too late for the first ones; 0 when it was given up.

local known = redis.call('HEXISTS', KEYS[2], ARGV[3]) == 1
local exists = redis.call('EXISTS', KEYS[1]) == 1
if ARGV[4] == '1' and not known and exists then
  return 0
end
local from = string.format('%.0f-0', ARGV[1] + 1)
if ARGV[4] ~= '1' and exists then
  -- Who comes when the first pieces were let go would hold up the others for what it cannot have.
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if oldest == nil or tonumber(string.match(oldest[1], '^%d+')) > ARGV[1] + 1 then
    return nil
  end
end
-- Before there is a piece as well: the first may be the last for which the flight's own followers are known.
redis.call('HSET', KEYS[2], ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
if not exists then
  return {}
end
return redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', ARGV[2])
