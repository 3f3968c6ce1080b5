-- Frees the key of a flight of which nothing is shared; waiting processes learn that it was released.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the flight's result, for waiters that missed the push
-- ARGV[1]  flight id
-- ARGV[2]  fence; '' when the asker never learned it, because the reply to its claim was lost
-- ARGV[3]  '1': leave a flight alone for which processes wait
-- ARGV[4]  prefix of the processes' channels
-- ARGV[5]  how long the result waits for its waiters, in ms
-- ARGV[6]  how long the flight id stays barred, in ms; 0: not at all. A claim that is still under way when its asker has
--          given it up must not take the key when it arrives after this
--
-- Result: 1 held and freed, 0 lost, 2 awaited and nothing changed.
--
-- A lease that has passed is lost, and what holds the key goes on to hold it. Not so for the asker who never learned
-- that it led, or could not say in time that nothing is to be held (no fence): its flight executed nothing, and frees
-- the key as long as the record is there.
--
-- Push, to each waiting process: marker, length of the flight id as one byte, flight id. The marker is the result too: a
-- follower knows the rest from its own claim. Marker 'r': nothing was executed. Marker 'u', without a fence: the asker may
-- have gone on without the store, and nobody can say here.

local bar = tonumber(ARGV[6])
local word = ARGV[2] == '' and 'u' or 'r'
local record = redis.call('HMGET', KEYS[1], 's', 'f', 'n', 'l')
local held = record[1] == 'f' and record[2] == ARGV[1]
if held and ARGV[2] ~= '' then
  local t = redis.call('TIME')
  held = record[3] == ARGV[2] and tonumber(record[4]) > t[1] * 1000000 + t[2]
end
if not held then
  if bar > 0 then
    -- For a server that is full, as in renew.lua.
    redis.call('HDEL', KEYS[1], '')
    redis.call('SET', KEYS[2], word, 'PX', bar, 'NX')
  end
  return 0
end

local waiting = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'w:' then
    waiting[#waiting + 1] = string.sub(field, 3)
  end
end
if #waiting > 0 and ARGV[3] == '1' then
  return 2
end

redis.call('DEL', KEYS[1])
if #waiting > 0 or bar > 0 then
  redis.call('SET', KEYS[2], word, 'PX', math.max(bar, tonumber(ARGV[5])))
end
local push = word .. string.char(#ARGV[1]) .. ARGV[1]
for _, process in ipairs(waiting) do
  redis.pcall('PUBLISH', ARGV[4] .. process, push)
end
return 1
