-- Who has this key? Takes it when it is free.
--
-- KEYS[1]  the key's record (hash): s state ('f' in flight, 'd' done), f flight, n fence, e election,
--          t start of the flight (us), w:<process> one field per waiting process with the number of the question
--          that registered it last; when done also c completion (us) and b the frame
-- KEYS[2]  where the result of the asker's own flight would stand, should that flight have ended already
-- ARGV[1]  the asker's flight id
-- ARGV[2]  lease in ms
-- ARGV[3]  election
-- ARGV[4]  the asker's process id when it wants to wait for somebody else's flight, else ''
-- ARGV[5]  number of this question; each that may register the process has a larger one than those before
--
-- Result, by its first element:
--   'L', fence                                   the key is the asker's, now or since an earlier try
--   'F', flight, lease left ms, age ms, election somebody else's flight; the process is registered when ARGV[4] is set
--   'S', flight, frame, age ms, time left ms     a kept response
--   'E'                                          the asker's flight has ended or was given up: it cannot begin again
--
-- The fence is the store's clock in microseconds. Only that grows over the deletion of the record and over FLUSHALL
-- without a counter that would have to outlive every key: two leaders of one key are at least two commands apart, and a
-- command takes more than a microsecond. It holds as long as the store's clock is not set back, as do leases.
-- Numbers above 2^31 are formatted by hand: Lua would write them with 14 digits, and an integer reply is fine only
-- for what fits.

local function us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'e', 't')
local state = record[1]

if state == 'f' then
  if record[2] == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return { 'L', record[3] }
  end
  if ARGV[4] ~= '' then
    redis.call('HSET', KEYS[1], 'w:' .. ARGV[4], ARGV[5])
  end
  local age = math.max(0, math.floor((us() - record[5]) / 1000))
  return { 'F', record[2], redis.call('PTTL', KEYS[1]), age, tonumber(record[4]) }
end

if state == 'd' then
  local done = redis.call('HMGET', KEYS[1], 'b', 'c')
  local age = math.max(0, math.floor((us() - done[2]) / 1000))
  return { 'S', record[2], done[1], age, redis.call('PTTL', KEYS[1]) }
end

if redis.call('EXISTS', KEYS[2]) == 1 then
  return { 'E' }
end

local fence = string.format('%.0f', us())
redis.call('HSET', KEYS[1], 's', 'f', 'f', ARGV[1], 'n', fence, 'e', ARGV[3], 't', fence)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { 'L', fence }
