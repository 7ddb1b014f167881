-- region.lua: one turn of one process: it renews its entry, may replace the topology and the epoch, and reads all. In a
-- cluster it also does so, with neither, on a hash on each other primary: there it shows what becomes of that primary's data.
--
-- KEYS  the hash
-- ARGV  our field, and its value ('' removes it); a topology, and what replaces it if it is in force ('' leaves it);
--       the epoch that we know ('' = none), the largest number that is known to have been ('' = this hash has none), and
--       when another epoch begins: 'another', 'stepped', 'lost' or 'reopen' if ours is in force, '' if the hash has none; the number
--       of our last turn that was answered; by how much TIME is ahead of our host's clock, µs ('' = we do not watch TIME yet); the
--       largest TIME that we have seen
-- Reply TIME in µs, the topology in force ('' = none), the epoch 'number lost since first unwatched data lost_in' (TIME of the last
--       known loss of data or step of TIME forward, 0 = never, -TIME once an operator has reopened the region; when the epoch began;
--       the epoch that began this hash; for how long nobody has watched TIME since the loss, µs; the largest TIME by which anything
--       can have counted that was lost last, 0 = never or reopened; the epoch that the last loss of data began, 0 = never), our
--       value as it was, 1 if this turn began the epoch, what of another server (below), 'TIME ahead' of the last turn of a
--       process that watches TIME as it was, then field and value of each other process
--
-- A new epoch is larger than those known, and at least TIME in seconds: so large that a process which knows none, in an empty
-- hash, gives no number again, unless it starts within a second, or TIME is behind what it was then.
--
-- Another server, by its run_id, may lack writes that the one before had confirmed. The first turn on it begins an epoch, and
-- asks the processes of which there are entries: each has to find the turn here that was answered last. Meanwhile the reply is
-- 'ask', and 'lost' when one has not done so in time. If there was none to ask it is 'took'.

local KEPT = 600000000 -- µs: longer than most outages of Redis; readers judge earlier, by their own clocks
local ASKED = 2000000 -- µs: two turns of each process
local AHEAD = 3600000000 -- µs: by how much TIME may have been set back since, for data that are lost to count by TIME as it was
local GONE = 4000000 -- µs: state.GoneAfter; older than the newest entry by so much, a process was dead already
local PAUSED = 60000000 -- µs: longer than most pauses: one that was away when the last other left may be back, with its turns lost

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local all = redis.call('HGETALL', KEYS[1])
local reply, written, newest = { string.format('%.0f', now), '', '', '', '', '', '' }, {}, 0
local server = ''
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  if field == 'topology' then
    reply[2] = value
  elseif field == 'epoch' then
    reply[3] = value
  elseif field == 'server' then
    server = value
  elseif field == 'watched' then
    reply[7] = value
    local at = tonumber(string.match(value, '^%d+')) or 0
    if at <= now then newest = math.max(newest, at - PAUSED) end -- of a process that may have left since
  else
    local at = tonumber(string.match(value, '^%d+'))
    written[field], newest = at, math.max(newest, at or 0)
    if field == ARGV[1] then
      reply[4] = value
    elseif at and at > now - KEPT then
      reply[#reply + 1] = field
      reply[#reply + 1] = value
    else
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
if ARGV[4] ~= '' and ARGV[3] == reply[2] then
  redis.call('HSET', KEYS[1], 'topology', ARGV[4])
  reply[2] = ARGV[4]
end
local epoch, lost = string.match(reply[3], '^(%d+) (%-?%d+)')
local first, unwatched, data, lost_in = string.match(reply[3], '^%S+ %S+ %S+ (%d+) (%d+) (%d+) (%d+)$')
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  local renew = ARGV[5] == epoch and ARGV[7] or ''
  local info = redis.pcall('INFO', 'server')
  local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '0'
  local before, since, asked = string.match(server, '^(%w+) (%d+)(.*)$')
  if before ~= run then
    since, asked = string.format('%.0f', now), asked or '' -- who did not answer on the server before is still asked
    for field, at in pairs(before and written or {}) do
      if at > newest - GONE then asked = asked .. ' ' .. field end
    end
    if before then
      reply[6] = 'took'
      if renew ~= 'lost' and renew ~= 'stepped' then renew = 'another' end
    end
  end
  local left = ''
  for field in string.gmatch(asked, '%S+') do
    local found = field == ARGV[1] and tonumber(string.match(reply[4], '^%d+ (%d+)')) or -1
    if found < tonumber(ARGV[8]) or field ~= ARGV[1] then left = left .. ' ' .. field end
  end
  if left ~= '' and now > since + ASKED then reply[6], renew = 'lost', 'lost' end
  if renew == 'lost' then left = '' end
  if left ~= '' then
    reply[6] = 'ask'
    if renew == 'reopen' then renew = '' end -- what was lost is not known yet
  end
  local value = run .. ' ' .. since .. left
  if value ~= server then redis.call('HSET', KEYS[1], 'server', value) end
  if ARGV[6] ~= '' and (reply[3] == '' or renew ~= '') then
    local before, number = lost, math.max(tonumber(ARGV[6]) + 1, tonumber(epoch or 0) + 1, tonumber(t[1]))
    if renew == 'lost' or reply[3] == '' and (ARGV[5] ~= '' or ARGV[6] ~= '0') then
      local seen = tonumber(ARGV[10])
      lost, data, lost_in = reply[1], seen > now and seen <= now + AHEAD and ARGV[10] or reply[1], number
    end
    if renew == 'stepped' then lost = reply[1] end
    if renew == 'reopen' then lost, data = '-' .. reply[1], 0 end
    if math.abs(tonumber(lost or 0)) > now then -- by a clock that was ahead then
      lost = (tonumber(lost) < 0 and '-' or '') .. reply[1]
    end
    if tonumber(data or 0) > now + AHEAD then data = reply[1] end
    local at = string.match(reply[7], '^%d+') or now
    unwatched = lost == before and tonumber(lost or 0) > 0 and tonumber(unwatched or 0) + math.max(0, now - at) or 0
    if reply[3] == '' then first = string.format('%.0f', number) end
    lost_in = tonumber(lost_in or 0)
    reply[3] = string.format('%.0f %s %s %s %.0f %s %.0f', number, lost or 0, reply[1], first or 0, unwatched, data or 0, lost_in)
    reply[5] = '1'
    redis.call('HSET', KEYS[1], 'epoch', reply[3])
  end
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', now) .. ARGV[2])
  if ARGV[9] ~= '' then redis.call('HSET', KEYS[1], 'watched', string.format('%.0f ', now) .. ARGV[9]) end
end
return reply
