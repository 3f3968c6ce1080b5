-- Ends a flight that still has its key, keeps how it ended if asked, and tells the waiting processes.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the flight's result, for waiters that missed the push
-- KEYS[3]  the key's mark, a string of its own so that the record is free: the response was for one client alone
-- KEYS[4]  who reads the pieces of the flight (pieces.lua)
-- ARGV[1]  flight id
-- ARGV[2]  fence
-- ARGV[3]  frame: the settlement in bytes
-- ARGV[4]  how long the frame answers later claims, in ms; 0: the key is free at once
-- ARGV[5]  prefix of the processes' channels
-- ARGV[6]  how long the result waits for its waiters, in ms
-- ARGV[7]  largest frame in bytes that travels inside the push
-- ARGV[8]  state of the record that is kept: 'd' done, 'u' unknown
-- ARGV[9]  how long the key is marked, in ms; 0: it is marked no longer; '': the mark is left as it is
-- ARGV[10] '1': the pieces may go on beyond the flight, and this is their first sign of life
--
-- Result: 1 held and settled (also by an earlier try of the same flight), 0 lost and nothing changed.
--
-- Push, to each waiting process: marker, length of the flight id as one byte, flight id, frame. Marker 'i': the frame
-- is inline; 'f': it has to be fetched. Here and in the other scripts a push that is refused (ACL) is none, and what was
-- written stands: polls do for it.

local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'l', 't', 'fp', 'r', 'p')
if record[2] ~= ARGV[1] or record[3] ~= ARGV[2] then
  return redis.call('GET', KEYS[2]) == ARGV[3] and 1 or 0
end
if record[1] ~= 'f' then
  -- Ended by an earlier try, or by somebody else's word: an operator's.
  return redis.call('HGET', KEYS[1], 'b') == ARGV[3] and 1 or 0
end
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if tonumber(record[4]) <= now then
  return 0
end

local waiting = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'w:' then
    waiting[#waiting + 1] = string.sub(field, 3)
  end
end

local keep = tonumber(ARGV[4])
local grace = tonumber(ARGV[6])
redis.call('DEL', KEYS[1])
if keep > 0 then
  redis.call('HSET', KEYS[1], 's', ARGV[8], 'f', ARGV[1], 'n', ARGV[2], 't', record[5], 'fp', record[6],
    'r', record[7], 'c', string.format('%.0f', now), 'b', ARGV[3])
  -- Who led is worth knowing as long as the outcome is not.
  if ARGV[8] == 'u' and record[8] then
    redis.call('HSET', KEYS[1], 'p', record[8])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
if ARGV[9] == '0' then
  redis.call('DEL', KEYS[3])
elseif ARGV[9] ~= '' then
  redis.call('SET', KEYS[3], '', 'PX', ARGV[9])
end

if ARGV[10] == '1' and redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('HSET', KEYS[4], '@', string.format('%.0f', now))
end

if #waiting > 0 then
  if keep < grace then
    redis.call('SET', KEYS[2], ARGV[3], 'PX', grace)
  end
  local push = string.char(#ARGV[1]) .. ARGV[1]
  if #ARGV[3] <= tonumber(ARGV[7]) then
    push = 'i' .. push .. ARGV[3]
  else
    push = 'f' .. push
  end
  for _, process in ipairs(waiting) do
    redis.pcall('PUBLISH', ARGV[5] .. process, push)
  end
end
return 1
