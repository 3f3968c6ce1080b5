-- Ends what has the key, by an operator's word or by that of the API, and tells the waiting processes and
-- that of its leader.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the result of the flight that has the key, for waiters that missed the push
-- ARGV[1]  id of that flight, as it was read just before
-- ARGV[2]  frame: how it ended, in bytes; '': the key is freed
-- ARGV[3]  how long the frame answers later claims, in ms; 0: the key is free at once
-- ARGV[4]  prefix of the processes' channels
-- ARGV[5]  how long the result waits for its waiters, and how long the flight cannot begin again, in ms
-- ARGV[6]  largest frame in bytes that travels inside the push
-- ARGV[7]  'u': only if the flight's outcome is unknown; '': in whatever state it is
--
-- Result: 1 settled; 0 nothing has the key; 2 another flight has it by now, or this one in another state than asked for,
-- and nothing changed.
--
-- Pushes are those of complete.lua with a frame and those of release.lua without one. A result that is there already
-- is how the flight ended, and stays what its waiters are told.
-- To the process that led a flight which had not ended: 'l', length of the flight id as one byte, flight id. Its lease is
-- lost.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'l', 'h', 't', 'fp', 'r', 'p')
if not record[1] then
  return 0
end
local passed = record[1] == 'f' and tonumber(record[4]) <= now
if passed and tonumber(record[5]) == 0 then
  return 0
end
if record[2] ~= ARGV[1] then
  return 2
end
if ARGV[7] == 'u' and record[1] ~= 'u' and not passed then
  return 2
end

local waiting = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'w:' then
    waiting[#waiting + 1] = string.sub(field, 3)
  end
end

redis.call('DEL', KEYS[1])
local frame = ARGV[2]
if frame ~= '' and tonumber(ARGV[3]) > 0 then
  redis.call('HSET', KEYS[1], 's', 'd', 'f', ARGV[1], 'n', record[3], 't', record[6], 'fp', record[7], 'r', record[8],
    'c', string.format('%.0f', now), 'b', frame)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end

redis.call('SET', KEYS[2], frame == '' and 'r' or frame, 'PX', ARGV[5], 'NX')
local push = string.char(#ARGV[1]) .. ARGV[1]
-- The leader first: whoever hears of the end and asks its process again is to find it closed.
if record[1] == 'f' and record[9] then
  redis.pcall('PUBLISH', ARGV[4] .. record[9], 'l' .. push)
end
if frame == '' then
  push = 'r' .. push
elseif #frame <= tonumber(ARGV[6]) then
  push = 'i' .. push .. frame
else
  push = 'f' .. push
end
for _, process in ipairs(waiting) do
  redis.pcall('PUBLISH', ARGV[4] .. process, push)
end
return 1
