-- What has become of a flight, as far as its key's record tells. Changes nothing.
--
-- KEYS[1]  the key's record
-- ARGV[1]  flight id
--
-- Result, by its first element:
--   'F'                the flight is under its lease
--   'U', time left ms  its outcome is unknown and holds the key
--   'O'                it is over: settled or expired, or another flight has the key

local record = redis.call('HMGET', KEYS[1], 's', 'f', 'l', 'h')
if record[2] ~= ARGV[1] then
  return { 'O' }
end
if record[1] == 'f' then
  local t = redis.call('TIME')
  if tonumber(record[3]) > t[1] * 1000000 + t[2] then
    return { 'F' }
  end
  if tonumber(record[4]) == 0 then
    return { 'O' }
  end
elseif record[1] ~= 'u' then
  return { 'O' }
end
return { 'U', redis.call('PTTL', KEYS[1]) }
