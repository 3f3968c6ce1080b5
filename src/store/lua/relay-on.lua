-- Sends a piece of a response whose flight is over to the processes that read its pieces already, and gives a sign of life.
--
-- KEYS[1]  the pieces of the flight (stream); ids are <index + 1>-0
-- KEYS[2]  who reads them (hash): process -> index of the piece that it wants next; '@' -> sign of life, in us
-- ARGV[1]  flight id
-- ARGV[2]  index of the piece
-- ARGV[3]  the piece; '': none, this only asks
-- ARGV[4]  prefix of the processes' channels
-- ARGV[5]  how long the pieces are kept after the newest, in ms
-- ARGV[6]  who wants a piece before this one is given up
--
-- Result: { the index that the slowest wants next, how many read }, { -1, 0 } when nobody does. What everybody has read is
-- let go.
--
-- Push, to each reading process: as relay.lua writes it.

-- For a server that is full, as in renew.lua.
redis.call('HDEL', KEYS[2], '')
local slowest = -1
local reading = {}
local readers = redis.call('HGETALL', KEYS[2])
for i = 1, #readers, 2 do
  if readers[i] ~= '@' then
    local wanted = tonumber(readers[i + 1])
    if wanted < tonumber(ARGV[6]) then
      redis.call('HDEL', KEYS[2], readers[i])
    else
      reading[#reading + 1] = readers[i]
      if slowest < 0 or wanted < slowest then
        slowest = wanted
      end
    end
  end
end
-- Without the pieces before it this one is worth nothing.
if slowest < 0 or redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('UNLINK', KEYS[1], KEYS[2])
  return { -1, 0 }
end

if ARGV[3] ~= '' then
  local added = redis.pcall('XADD', KEYS[1], string.format('%.0f-0', ARGV[2] + 1), 'b', ARGV[3])
  -- Asked twice, it is there already. Anything else is a failure: what is not kept is not sent.
  if type(added) == 'table' and added.err and not string.find(added.err, 'equal or smaller', 1, true) then
    return added
  end
  local push = 's' .. string.char(#ARGV[1]) .. ARGV[1] .. struct.pack('>I4', ARGV[2]) .. ARGV[3]
  for _, process in ipairs(reading) do
    redis.pcall('PUBLISH', ARGV[4] .. process, push)
  end
end
local t = redis.call('TIME')
redis.call('HSET', KEYS[2], '@', string.format('%.0f', t[1] * 1000000 + t[2]))
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-0', slowest + 1))
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return { slowest, #reading }
