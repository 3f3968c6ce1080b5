-- Who has this key? Takes it when it is free.
--
-- KEYS[1]  the key's record (hash):
--            s   state: 'f' in flight, 'd' done and kept, 'u' ended with an outcome that nobody knows
--            f   flight            n  fence            t  start of the flight (us)
--            fp  fingerprint       r  route            p  the leader's process; not there when an earlier version led
--          in flight also
--            e   election          l  end of the lease (us)
--            h   how long an unknown outcome holds the key after the lease (ms): the record lives until l and h are over
--            w:<process>  one for each waiting process: number of the question that registered it last
--          done or unknown also
--            c   completion (us)   b  the frame
-- KEYS[2]  where the result of the asker's own flight would stand, should that flight have ended already
-- KEYS[3]  there when somebody was elected after the flight of ARGV[9]
-- KEYS[4]  the key's mark: there while the key's response is expected to be for one client alone (complete.lua)
-- ARGV[1]  the asker's flight id
-- ARGV[2]  lease in ms
-- ARGV[3]  election
-- ARGV[4]  the asker's process id
-- ARGV[5]  number of this question, when the process is to be registered for somebody else's flight; each has a larger one
--          than those before. Else ''
-- ARGV[6]  fingerprint, may be ''
-- ARGV[7]  hold in ms; 0: when the lease passes the key is free
-- ARGV[8]  route
-- ARGV[9]  flight after whose failure the asker stands for election, or ''
-- ARGV[10] how long an election is remembered, in ms
-- ARGV[11] largest frame in bytes that travels inside the reply
-- ARGV[12] '1': the key is taken when it is free; '': it is only looked at
--
-- Result, by its first element:
--   'L', fence, mark                             the key is the asker's, now or since an earlier try; mark is 1 or 0
--   'M'                                          another fingerprint has the key; nobody is registered
--   'F', flight, lease left ms, age ms, election, mark
--                                                somebody else's flight; the process is registered when ARGV[5] is set and
--                                                there is no mark
--   'S', flight, frame, age ms, time left ms, length of the frame
--                                                what is kept: a response, or that there was one; a larger frame than
--                                                ARGV[11] is '' here and has to be fetched
--   'U', flight, time left ms                    an outcome that nobody knows holds the key
--   'X'                                          somebody was elected after that flight, and that leader's flight is over
--   'N'                                          nobody has it, and it was only looked at
--   'E'                                          the asker's flight has ended or was given up: it cannot begin again
--
-- The fence is the store's clock in microseconds. Only that grows over the deletion of the record and over FLUSHALL
-- without a counter that would have to outlive every key: two leaders of one key are at least two commands apart, and a
-- command takes more than a microsecond. It holds as long as the store's clock is not set back, as do leases.
-- Numbers above 2^31 are formatted by hand: Lua would write them with 14 digits, and an integer reply is fine only
-- for what fits.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'e', 't', 'fp', 'l', 'h')
local state = record[1]
local own = record[2] == ARGV[1]
local leaseLeft = 0

if state == 'f' then
  leaseLeft = tonumber(record[7]) - now
  if leaseLeft <= 0 then
    state = tonumber(record[8]) > 0 and 'u'
  end
end

if state and not own and record[6] ~= ARGV[6] then
  return { 'M' }
end

-- The writes of each branch begin with one that takes no room, as in renew.lua.
local function lease()
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[2] + record[8]))
  redis.call('HSET', KEYS[1], 'l', string.format('%.0f', now + ARGV[2] * 1000))
end

if state == 'f' then
  local mark = redis.call('EXISTS', KEYS[4])
  if own then
    lease()
    return { 'L', record[3], mark }
  end
  if ARGV[5] ~= '' and mark == 0 then
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], 'w:' .. ARGV[4], ARGV[5])
  end
  local age = math.max(0, math.floor((now - record[5]) / 1000))
  return { 'F', record[2], math.floor(leaseLeft / 1000), age, tonumber(record[4]), mark }
end

if state == 'd' then
  local age = math.max(0, math.floor((now - redis.call('HGET', KEYS[1], 'c')) / 1000))
  local length = redis.call('HSTRLEN', KEYS[1], 'b')
  local frame = length <= tonumber(ARGV[11]) and redis.call('HGET', KEYS[1], 'b') or ''
  return { 'S', record[2], frame, age, redis.call('PTTL', KEYS[1]), length }
end

if state == 'u' then
  return { 'U', record[2], redis.call('PTTL', KEYS[1]) }
end

if redis.call('EXISTS', KEYS[2]) == 1 then
  return { 'E' }
end

if ARGV[9] ~= '' and redis.call('EXISTS', KEYS[3]) == 1 then
  return { 'X' }
end

if ARGV[12] == '' then
  return { 'N' }
end

local fence = string.format('%.0f', now)
-- A record whose lease has passed may be there for the rest of its last millisecond.
redis.call('DEL', KEYS[1])
if ARGV[9] ~= '' then
  redis.call('SET', KEYS[3], '', 'PX', ARGV[10])
end
redis.call('HSET', KEYS[1], 's', 'f', 'f', ARGV[1], 'n', fence, 'e', ARGV[3], 't', fence, 'fp', ARGV[6], 'h', ARGV[7],
  'r', ARGV[8], 'p', ARGV[4])
record[8] = ARGV[7]
lease()
return { 'L', fence, redis.call('EXISTS', KEYS[4]) }
