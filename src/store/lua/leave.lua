-- Withdraws a process from the waiters of a flight that is still up: nobody there waits for it any more.
--
-- KEYS[1]  the key's record
-- ARGV[1]  flight id
-- ARGV[2]  the process id
-- ARGV[3]  number of the last question by which the process registered and of which nobody waits for the flight any more
--
-- Result: 1 withdrawn, 0 nothing changed.
--
-- A registration with a larger number was made by a later claim, whose follower is to be woken: a withdrawal may come
-- late, over another connection or asked again, and must not undo it.

local waiter = 'w:' .. ARGV[2]
local record = redis.call('HMGET', KEYS[1], 's', 'f', waiter)
if record[1] ~= 'f' or record[2] ~= ARGV[1] or not record[3] then
  return 0
end
if tonumber(record[3]) > tonumber(ARGV[3]) then
  return 0
end
return redis.call('HDEL', KEYS[1], waiter)
