-- Removes what a key is kept with, and its mark. A variant of the key (Vary) is a key of its own, and of another hash slot.
--
-- KEYS[1]  the key's record
-- KEYS[2]  the key's mark
-- KEYS[3]  the turns of a queue for the key
-- ARGV[1]  only if it is kept by the rule of this name; '': by any, and a mark without a record goes too
--
-- Result: 1 removed; 0 nothing is kept; 2 a flight, a turn or an unknown outcome has the key, and nothing changed.

local record = redis.call('HMGET', KEYS[1], 's', 'r', 'l', 'h')
local state = record[1]
if state == 'f' then
  local t = redis.call('TIME')
  if tonumber(record[3]) > t[1] * 1000000 + t[2] or tonumber(record[4]) > 0 then
    return 2
  end
  state = false
end
if state == 'u' or redis.call('EXISTS', KEYS[3]) == 1 then
  return 2
end
if ARGV[1] ~= '' and (state ~= 'd' or record[2] ~= ARGV[1]) then
  return 0
end
local marks = redis.call('DEL', KEYS[2])
if state == 'd' then
  redis.call('DEL', KEYS[1])
  return 1
end
return marks
