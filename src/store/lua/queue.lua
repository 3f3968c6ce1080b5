-- The queue of a key: who has a turn and who waits for one. One script, since every question ends in the same step:
-- what has expired is over, and free turns go to those who came first.
--
-- KEYS[1]  the turns (hash):
--            h:<flight>   '<state> <fence> <end us> <start us> <hold ms> <token> <route>'; state: 'o' offered to a process
--                         that has not taken it yet, 'f' in flight, 'u' unknown; end: of the lease, or of the hold
--            p:<process>/<lease ms>  '<end us> <token>': until when the places stand that a process has with that lease
--            c            concurrency           n  last fence
-- KEYS[2]  the places (sorted set): '<flight> <process>/<lease ms> <hold ms> <route>' by arrival (us)
-- KEYS[3]  there when the asker's flight was given up (release.lua): it must not begin when its question comes late
-- ARGV[1]  what is asked; ARGV[2] prefix of the processes' channels; ARGV[3] the key; then, by what is asked:
--
--   'enter', flight, process, lease ms, token, hold ms, route, concurrency, most places
--     'T', fence, token           the turn is the asker's, now or since an earlier try
--     'Q', time ms                it has a place; time until the next turn expires
--     'N', lease left ms, age ms  there are as many places as there may be; of the turn that ends first
--     'U', time left ms           outcomes that nobody knows have every turn
--     'E'                         the flight was given up
--   'look', process, lease ms, token, place...           the process lives and its places with that lease stand
--     'U', time left ms           as above; no place stands any more
--     'W', time ms until the next turn expires or -1, then two for each place: fence and token when it has the turn,
--     'w' '' when it waits, '' '' when it is gone
--   'renew', flight, fence, lease ms                      1 held and extended, 0 lost and nothing changed
--   'leave', flight, fence or '', place or '', hold ms, bar ms
--     1 the turn was held, and is free or, with a hold, unknown for that long; 0 it was lost. Without a fence whatever
--     the flight has is given up, and it is barred from coming back.
--   'free', flight or ''                                  by an operator's word: 1 the flight's turn, or every turn whose
--     outcome is unknown, was freed; 0 there is none; 2 others have turns
--
-- The token is '<until>@<process>': a process's own note of until when it may count on a lease that it was promised, and
-- its id; it comes back with the turn that this promise made. Of an earlier version it is the note alone: the id stands
-- there because those versions read a turn as seven words. A lease that is given with a turn is the rest of the promise,
-- so that the places of a dead process are passed over, one after the other, within one lease of its death. An offer that
-- is not taken was not used: it is free when it ends, whatever it was to hold.
--
-- Pushes, to processes: 'g', length of the flight id as one byte, flight id, '<fence> <token>': the turn is there.
-- 'b', length of the key as one byte, key: look again, your places are gone.
-- 'l', length of the flight id as one byte, flight id: the turn is lost, it was freed by an operator's word.
--
-- Numbers above 2^31 are formatted by hand, as in claim.lua. So is the fence made: by the clock, and above the last one.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local op, channel, key = ARGV[1], ARGV[2], ARGV[3]
local turns, alive, lastFence, concurrency = {}, {}, 0, 1

local function text(number)
  return string.format('%.0f', number)
end

-- For a server that is full, as in renew.lua.
redis.call('HDEL', KEYS[1], '')
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do
  local kind, name, value = string.sub(flat[i], 1, 2), string.sub(flat[i], 3), flat[i + 1]
  if kind == 'h:' then
    local state, fence, ends, start, hold, token, route =
      string.match(value, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    turns[name] = { state = state, fence = fence, ends = tonumber(ends), start = tonumber(start), hold = tonumber(hold),
      token = token, route = route }
  elseif kind == 'p:' then
    local ends, token = string.match(value, '^(%S+) (%S+)$')
    alive[name] = { ends = tonumber(ends), token = token }
  elseif flat[i] == 'n' then
    lastFence = tonumber(value)
  else
    concurrency = tonumber(value)
  end
end

local function save(flight)
  local turn = turns[flight]
  redis.call('HSET', KEYS[1], 'h:' .. flight, table.concat({ turn.state, turn.fence, text(turn.ends), text(turn.start),
    text(turn.hold), turn.token, turn.route }, ' '))
end

local function drop(flight)
  turns[flight] = nil
  redis.call('HDEL', KEYS[1], 'h:' .. flight)
end

-- A process has a life for each lease: one that is short must not stand as long as one that is long.
local function lives(process, lease, token)
  local life = process .. '/' .. lease
  alive[life] = { ends = now + lease * 1000, token = token }
  redis.call('HSET', KEYS[1], 'p:' .. life, text(alive[life].ends) .. ' ' .. token)
  return life
end

local function push(life, message)
  redis.pcall('PUBLISH', channel .. string.match(life, '^(.*)/'), message)
end

local function parse(place)
  return string.match(place, '^(%S+) (%S+) (%S+) (%S+)$')
end

local function expire()
  for flight, turn in pairs(turns) do
    if turn.ends <= now then
      local held = turn.ends + turn.hold * 1000
      if turn.state == 'f' and held > now then
        turn.state, turn.ends = 'u', held
        save(flight)
      else
        drop(flight)
      end
    end
  end
  local died = false
  for name, life in pairs(alive) do
    if life.ends <= now then
      died = true
      alive[name] = nil
      redis.call('HDEL', KEYS[1], 'p:' .. name)
    end
  end
  -- Once for each death, not for each question: there may be many places.
  if died then
    for _, place in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
      local _, name = parse(place)
      if not alive[name] then
        redis.call('ZREM', KEYS[2], place)
      end
    end
  end
end

-- Time left in ms when outcomes that nobody knows have every turn, else nil.
local function blocked()
  local count, first = 0, nil
  for _, turn in pairs(turns) do
    if turn.state == 'u' then
      count = count + 1
      first = math.min(first or turn.ends, turn.ends)
    end
  end
  return count >= concurrency and math.floor((first - now) / 1000) or nil
end

local function give(flight, life, hold, route, state)
  lastFence = math.max(now, lastFence + 1)
  turns[flight] = { state = state, fence = text(lastFence), ends = alive[life].ends, start = now,
    hold = tonumber(hold), token = alive[life].token, route = route }
  redis.call('HSET', KEYS[1], 'n', text(lastFence))
  save(flight)
end

-- The step in which every question ends: nothing stands that has expired, and no turn is free while somebody waits.
local function advance(asker)
  expire()
  if blocked() then
    if redis.call('DEL', KEYS[2]) == 1 then
      for life in pairs(alive) do
        push(life, 'b' .. string.char(#key) .. key)
      end
    end
  else
    local used = 0
    for _ in pairs(turns) do
      used = used + 1
    end
    while used < concurrency do
      local place = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
      if not place then
        break
      end
      redis.call('ZREM', KEYS[2], place)
      local flight, life, hold, route = parse(place)
      if alive[life] then
        used = used + 1
        give(flight, life, hold, route, (flight == asker or hold == '0') and 'f' or 'o')
        if flight ~= asker then
          local turn = turns[flight]
          push(life, 'g' .. string.char(#flight) .. flight .. turn.fence .. ' ' .. turn.token)
        end
      end
    end
  end
  local last = 0
  for _, turn in pairs(turns) do
    last = math.max(last, turn.ends + (turn.state == 'f' and turn.hold * 1000 or 0))
  end
  if redis.call('EXISTS', KEYS[2]) == 1 then
    for _, life in pairs(alive) do
      last = math.max(last, life.ends)
    end
  end
  if last == 0 then
    redis.call('DEL', KEYS[1], KEYS[2])
  else
    local at = text(math.ceil(last / 1000) + 1)
    redis.call('PEXPIREAT', KEYS[1], at)
    redis.call('PEXPIREAT', KEYS[2], at)
  end
end

local function first()
  local found
  for _, turn in pairs(turns) do
    if not found or turn.ends < found.ends then
      found = turn
    end
  end
  return found
end

local function enter()
  local flight, process, lease, token, hold, route = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
  if redis.call('EXISTS', KEYS[3]) == 1 then
    return { 'E' }
  end
  concurrency = tonumber(ARGV[10])
  redis.call('HSET', KEYS[1], 'c', ARGV[10])
  local life = lives(process, lease, token)
  expire()
  local own = turns[flight]
  if own and own.state ~= 'u' then
    own.state, own.ends, own.token = 'f', now + lease * 1000, token
    save(flight)
    advance(flight)
    return { 'T', own.fence, token }
  end
  local left = blocked()
  if left then
    advance(flight)
    return { 'U', left }
  end
  local place = table.concat({ flight, life, hold, route }, ' ')
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
  redis.call('ZADD', KEYS[2], 'NX', text(math.max(now, last + 1)), place)
  advance(flight)
  if turns[flight] then
    return { 'T', turns[flight].fence, turns[flight].token }
  end
  local most = tonumber(ARGV[11])
  if redis.call('ZRANK', KEYS[2], place) >= most then
    redis.call('ZREM', KEYS[2], place)
    local ending = first()
    return { 'N', math.floor((ending.ends - now) / 1000), math.max(0, math.floor((now - ending.start) / 1000)) }
  end
  return { 'Q', math.ceil((first().ends - now) / 1000) }
end

local function look()
  lives(ARGV[4], ARGV[5], ARGV[6])
  advance('')
  local left = blocked()
  if left then
    return { 'U', left }
  end
  local ending = first()
  local reply = { 'W', ending and math.max(0, math.ceil((ending.ends - now) / 1000)) or -1 }
  for i = 7, #ARGV do
    local turn = turns[parse(ARGV[i])]
    if turn and turn.state ~= 'u' then
      reply[#reply + 1] = turn.fence
      reply[#reply + 1] = turn.token
    else
      reply[#reply + 1] = redis.call('ZSCORE', KEYS[2], ARGV[i]) and 'w' or ''
      reply[#reply + 1] = ''
    end
  end
  return reply
end

local function renew()
  local turn = turns[ARGV[4]]
  local held = turn and turn.fence == ARGV[5] and turn.state ~= 'u' and turn.ends > now
  if held then
    turn.state, turn.ends = 'f', now + ARGV[6] * 1000
    save(ARGV[4])
  end
  advance('')
  return held and 1 or 0
end

local function leave()
  local flight, fence, hold, bar = ARGV[4], ARGV[5], tonumber(ARGV[7]), tonumber(ARGV[8])
  local turn = turns[flight]
  local held = turn and (fence == '' or turn.fence == fence and turn.state ~= 'u' and turn.ends > now)
  if held and hold > 0 then
    turn.state, turn.ends = 'u', now + hold * 1000
    save(flight)
  elseif held then
    drop(flight)
  end
  if ARGV[6] ~= '' then
    redis.call('ZREM', KEYS[2], ARGV[6])
  end
  if bar > 0 then
    redis.call('SET', KEYS[3], 'r', 'PX', bar, 'NX')
  end
  advance('')
  return held and 1 or 0
end

local function free()
  expire()
  local others, freed = false, false
  for flight, turn in pairs(turns) do
    if flight == ARGV[4] or (ARGV[4] == '' and turn.state == 'u') then
      drop(flight)
      local process = turn.state ~= 'u' and string.match(turn.token, '@(.+)$')
      if process then
        redis.pcall('PUBLISH', channel .. process, 'l' .. string.char(#flight) .. flight)
      end
      freed = true
    else
      others = true
    end
  end
  advance('')
  return freed and 1 or others and 2 or 0
end

return ({ enter = enter, look = look, renew = renew, leave = leave, free = free })[op]()
