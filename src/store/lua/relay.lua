-- Sends a piece of a response under way to the processes that wait for its flight, and keeps it for those that come later.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the pieces of the flight (stream); ids are <index + 1>-0
-- KEYS[3]  who reads them (hash): process -> index of the piece that it wants next
-- ARGV[1]  flight id
-- ARGV[2]  fence
-- ARGV[3]  index of the piece, from 0
-- ARGV[4]  the piece
-- ARGV[5]  prefix of the processes' channels
-- ARGV[6]  how long the pieces are kept after the newest, in ms
--
-- Result: 1 held and sent, 0 lost and nothing changed.
--
-- Push, to each waiting process: 's', length of the flight id as one byte, flight id, index as 4 bytes (big endian), piece.

local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'l')
if record[1] ~= 'f' or record[2] ~= ARGV[1] or record[3] ~= ARGV[2] then
  return 0
end
local t = redis.call('TIME')
if tonumber(record[4]) <= t[1] * 1000000 + t[2] then
  return 0
end

-- For a server that is full, as in renew.lua.
redis.call('HDEL', KEYS[3], '')
local added = redis.pcall('XADD', KEYS[2], string.format('%.0f-0', ARGV[3] + 1), 'b', ARGV[4])
-- Asked twice, it is there already. Anything else is a failure: what is not kept is not sent.
if type(added) == 'table' and added.err and not string.find(added.err, 'equal or smaller', 1, true) then
  return added
end
redis.call('PEXPIRE', KEYS[2], ARGV[6])
local push = 's' .. string.char(#ARGV[1]) .. ARGV[1] .. struct.pack('>I4', ARGV[3]) .. ARGV[4]
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'w:' then
    redis.pcall('PUBLISH', ARGV[5] .. string.sub(field, 3), push)
    -- It reads from the pushes on, before it has asked for anything.
    redis.call('HSETNX', KEYS[3], string.sub(field, 3), 0)
  end
end
redis.call('PEXPIRE', KEYS[3], ARGV[6])
return 1
