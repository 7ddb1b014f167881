-- decide.lua: decides checks one after the other, all limits of a check
-- together. Joined behind now.lua, which defines TIME (µs).
--
-- KEYS  the keys of all checks, in order; with an idempotency fingerprint the
--       check's record comes first, then one key per key of its shape.
-- ARGV  nonce, number of shapes, the shapes, then the checks.
--   shape: number of keys, then for each key
--     kind 'l' | 'w' | 'g', trim (largest L of the key's limits), ttl (ms), number of limits,
--       then for each limit: W (µs), C (its ceiling, '-' = given with each check), L
--   check: shape (from 1), op 'c' check | 'p' peek | 'r' report, cost, fingerprint ('' = none),
--       then one ceiling for each '-' of its shape, in order.
-- Reply  'nonce TIME', then for each check one string:
--   'a …' admitted, 'd …' denied, 'm …' an earlier admission replayed, followed for each limit by
--         remaining, wait (µs until the cost fits, 0 now, -1 not under this ceiling), reset (µs)
--   'x'   the idempotency key came with another fingerprint before
--   'e …' why this check could not be decided; nothing of it was written
--
-- A log is a list with one element for each admission, oldest first:
--   '1795198405260197'            cost 1: the stamp (Redis packs it into ten bytes)
--   '1795198405260197:57:4'       stamp : units admitted before it : its cost. From the first cost
--                                 above 1 on, a log has only these until it expires.
--   either with '+3600000000'     the offset of the partition's clock (quota.Tick), while it has one
-- A window is 'W:start:prev:cur:stamp:offset', a level 'W:units:frac:stamp:offset' (quota.Buckets, quota.Level).
--
-- Every number is an integer below 2^53. Numbers become text through '%.0f' alone: tostring keeps 14 digits.

local call, pcall, error, tonumber, pairs = redis.call, pcall, error, tonumber, pairs
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local format, match, concat = string.format, string.match, table.concat
local MAX = 9007199254740992
local MAX_HELD = 4 * 1099511627776 -- quota.maxHeld
local IDEMPOTENCY_US = 60000000

local function int(n) return format('%.0f', n) end

-- muldiv returns quotient and remainder of a*b/d, exact: long division by ten bits of a
-- at a time where the product would pass 2^53. a < 2^50; b, d <= 2^42.
local function muldiv(a, b, d)
  local p = a * b
  if p < MAX then
    local q = floor(p / d)
    return q, p - q * d
  end
  local q, r = 0, 0
  for shift = 40, 0, -10 do
    local t = r * 1024 + floor(a / 2 ^ shift) % 1024 * b
    local digit = floor(t / d)
    q, r = q * 1024 + digit, t - digit * d
  end
  return q, r
end

local function muldiv_up(a, b, d)
  local q, r = muldiv(a, b, d)
  return r > 0 and q + 1 or q
end

-- tick sets the partition's clock of state s: quota.TickAt. It also sees whether the
-- offset is another than what was kept, and so has to be kept anew.
local function tick(s, newest, kept)
  s.newest, s.offset = newest, 0
  if TIME < newest then
    s.offset = kept
    if kept == 0 or TIME + kept < newest then s.offset = newest - TIME end
  end
  s.now, s.stepped = TIME + s.offset, s.offset ~= kept
end

-- wait is quota.Tick.Until.
local function wait(s, due)
  if s.offset > 0 and due - s.offset < s.newest then
    return due - s.offset - TIME
  end
  return due - TIME
end

-- ---------------------------------------------------------------- sliding_log

local function entry(s, e)
  local stamp = tonumber(e)
  if stamp then
    if stamp > 0 and stamp < MAX and stamp % 1 == 0 then return stamp end
  elseif e then
    local at, before, cost, offset = match(e, '^(%d+):(%d+):(%d+)%+?(%d*)$')
    if at then return tonumber(at), tonumber(before), tonumber(cost), tonumber(offset) or 0 end
    at, offset = match(e, '^(%d+)%+(%d+)$')
    if at then return tonumber(at), nil, nil, tonumber(offset) end
  end
  error('GARBAGE in the log ' .. s.key, 0)
end

local function at(s, i) return entry(s, call('LINDEX', s.key, int(i))) end

local function load_log(key)
  local s = { key = key, used = {} }
  local tail = call('LINDEX', key, '-1')
  if not tail then
    s.size = 0
    tick(s, 0, 0)
    return s
  end
  local stamp, before, cost, offset = entry(s, tail)
  tick(s, stamp, offset or 0)
  s.tail, s.size = tail, call('LLEN', key)
  if before then s.total = before + cost end
  return s
end

-- weighted_from returns the index of the first entry that carries its units and the units before it.
local function weighted_from(s)
  if not s.from then
    local lo, hi = -1, s.size - 1 -- the newest is weighted
    while hi - lo > 1 do
      local mid = floor((lo + hi) / 2)
      local _, before = at(s, mid)
      if before then hi = mid else lo = mid end
    end
    local _, before = at(s, hi)
    s.from, s.base = hi, before
  end
  return s.from, s.base
end

-- units counts what stands in the log from entry i to its end.
local function units(s, i)
  if not s.total then return s.size - i end
  local from, base = weighted_from(s)
  if i < from then return from - i + s.total - base end
  local _, before = at(s, i)
  return s.total - before
end

-- used counts the units inside (now - W, now]. It looks for the oldest entry inside by
-- interpolation, since stamps are times and traffic is roughly even, and halves the
-- range whenever that did not: a handful of reads, never more than twice log2(size).
local function used(s, W)
  local u = s.used[W]
  if u then return u end
  local edge = s.now - W
  if s.newest <= edge then
    u = 0
  else
    local lo, below = 0, at(s, 0)
    if below > edge then
      u = units(s, 0)
    else
      local hi, above, narrow = s.size - 1, s.newest, true
      while hi - lo > 1 do
        local span, mid = hi - lo, floor((lo + hi) / 2)
        if narrow then
          mid = lo + floor((edge - below) / (above - below) * span)
          mid = max(lo + 1, min(hi - 1, mid))
        end
        local stamp = at(s, mid)
        if stamp > edge then hi, above = mid, stamp else lo, below = mid, stamp end
        narrow = not narrow or hi - lo <= span / 2
      end
      u = units(s, hi)
    end
  end
  s.used[W] = u
  return u
end

-- holder returns the stamp of the entry that holds the n-th newest unit.
local function holder(s, n)
  if not s.total then return (at(s, s.size - n)) end
  local from, base = weighted_from(s)
  if n > s.total - base then return (at(s, from - (n - (s.total - base)))) end
  local lo, hi = from, s.size -- the last entry with at least n units from it to the end
  while hi - lo > 1 do
    local mid = floor((lo + hi) / 2)
    if units(s, mid) >= n then lo = mid else hi = mid end
  end
  return (at(s, lo))
end

-- A cost c fits under C when the (C-c+1)-th newest unit is outside the window. At cost 1 that is
-- one element, and a denial needs no search: what remains is nothing.
local function judge_log(s, l, C, c)
  if c > C then return max(0, C - used(s, l.W)), -1 end
  if c == 1 and not s.total and s.size >= C and not s.used[l.W] then
    local stamp = at(s, -C)
    if stamp > s.now - l.W then return 0, wait(s, stamp + l.W) end
  end
  local u = used(s, l.W)
  if u + c <= C then return C - u, 0 end
  return max(0, C - u), wait(s, holder(s, C - c + 1) + l.W)
end

local function reset_log(s, l)
  if s.newest <= s.now - l.W then return 0 end
  return wait(s, s.newest + l.W)
end

local function mark(s) return s.offset > 0 and '+' .. int(s.offset) or '' end

local function write_log(s, k, c)
  c = min(c, k.trim) -- a report beyond the largest limit denies no longer than one of its size
  local e = int(s.now)
  if s.total or c > 1 then
    if not s.total then s.total, s.from, s.base = s.size, s.size, s.size end
    e = e .. ':' .. int(s.total) .. ':' .. int(c)
    s.total = s.total + c
  end
  s.tail = e .. mark(s)
  s.size = call('RPUSH', s.key, s.tail)
  if not s.kept then
    call('PEXPIRE', s.key, k.ttl)
    s.kept = true
  end
  s.newest, s.stepped = s.now, false
  for W, u in pairs(s.used) do s.used[W] = u + c end
  local drop = s.size - k.trim
  if drop <= 0 and s.total and s.size > 1 then
    local _, before, cost = at(s, 0)
    if before and s.total - before - cost >= k.trim then drop = 1 end
  end
  if drop == 1 then
    call('LPOP', s.key)
  elseif drop > 1 then
    call('LTRIM', s.key, int(drop), '-1')
  end
  if drop > 0 then
    s.size = s.size - drop
    if s.from then s.from = max(0, s.from - drop) end -- base may now be too low, which units and holder allow
  end
end

-- note keeps a step of the clock that a denial was the first to see. It charges nothing and
-- moves no counter on: TIME may yet go back further.
local function note_log(s)
  s.tail = match(s.tail, '^[%d:]+') .. mark(s)
  call('LSET', s.key, '-1', s.tail)
end

-- ------------------------------------------------------------- sliding_window

local function note_text(s, k)
  call('SET', s.key, match(s.text, '^.*:') .. int(s.offset), 'PX', k.ttl)
end

local function load_window(key, k)
  local s, W = { key = key }, k.limits[1].W
  local v = call('GET', key)
  s.text = v
  if not v then
    tick(s, 0, 0)
    s.start, s.prev, s.cur = s.now - s.now % W, 0, 0
    return s
  end
  local was, start, prev, cur, newest, offset = match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not was then error('GARBAGE in the window ' .. key, 0) end
  tick(s, tonumber(newest), tonumber(offset))
  was, s.start, s.prev, s.cur = tonumber(was), tonumber(start), tonumber(prev), tonumber(cur)
  local function roll(w)
    local begin = s.now - s.now % w
    if begin ~= s.start then
      s.prev = begin == s.start + w and s.cur or 0
      s.start, s.cur = begin, 0
    end
  end
  roll(was)
  if was ~= W then -- another window now: all that is used counts as spent just now
    s.cur = muldiv_up(s.prev, was - (s.now - s.start), was) + s.cur
    s.start, s.prev = s.now - s.now % W, 0
  end
  return s
end

local function fades(n, left, W)
  if n <= left then return 0 end
  return W - (muldiv(left, W, n))
end

local function judge_window(s, l, C, c)
  local W = l.W
  local u = muldiv_up(s.prev, W - (s.now - s.start), W) + s.cur
  if c > C then return max(0, C - u), -1 end
  if u + c <= C then return C - u, 0 end
  local room = C - c
  local due
  if s.cur <= room then
    due = s.start + fades(s.prev, room - s.cur, W)
  else
    due = s.start + W + fades(s.cur, room, W)
  end
  return max(0, C - u), wait(s, due)
end

local function reset_window(s, l)
  if s.cur > 0 then return wait(s, s.start + 2 * l.W) end
  if s.prev > 0 then return wait(s, s.start + l.W) end
  return 0
end

local function write_window(s, k, c)
  s.cur = min(s.cur + c, MAX_HELD)
  s.newest, s.stepped = s.now, false
  call('SET', s.key, int(k.limits[1].W) .. ':' .. int(s.start) .. ':' .. int(s.prev) .. ':' .. int(s.cur)
    .. ':' .. int(s.newest) .. ':' .. int(s.offset), 'PX', k.ttl)
end

-- ----------------------------------------------------------------------- gcra

local function load_level(key, k)
  local s, W, L = { key = key }, k.limits[1].W, k.limits[1].L
  local v = call('GET', key)
  s.text = v
  if not v then
    tick(s, 0, 0)
    s.units, s.frac = 0, 0
    return s
  end
  local was, n, frac, newest, offset = match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not was then error('GARBAGE in the level ' .. key, 0) end
  was, n, frac, newest = tonumber(was), tonumber(n), tonumber(frac), tonumber(newest)
  tick(s, newest, tonumber(offset))
  local f = muldiv_up(frac, W, was)
  n, frac = min(n + floor(f / W), 4 * k.limits[1].C), f % W
  local elapsed = s.now - newest
  local whole = floor(elapsed / W)
  if whole > floor(n / L) then
    n, frac = 0, 0
  else
    local q, r = muldiv(elapsed - whole * W, L, W)
    n, frac = n - whole * L - q, frac - r
    if frac < 0 then n, frac = n - 1, frac + W end
    if n < 0 then n, frac = 0, 0 end
  end
  s.units, s.frac = n, frac
  return s
end

local function falls(s, l, left)
  local q, r = muldiv(s.units - left, l.W, l.L)
  return wait(s, s.now + q + ceil((r + s.frac) / l.L))
end

local function judge_level(s, l, C, c)
  local u = s.frac > 0 and s.units + 1 or s.units
  if c > C then return max(0, C - u), -1 end
  if u + c <= C then return C - u, 0 end
  return max(0, C - u), falls(s, l, C - c)
end

local function reset_level(s, l)
  if s.units == 0 and s.frac == 0 then return 0 end
  return falls(s, l, 0)
end

local function write_level(s, k, c)
  s.units = min(s.units + c, 4 * k.limits[1].C)
  s.newest, s.stepped = s.now, false
  call('SET', s.key, int(k.limits[1].W) .. ':' .. int(s.units) .. ':' .. int(s.frac)
    .. ':' .. int(s.newest) .. ':' .. int(s.offset), 'PX', k.ttl)
end

-- --------------------------------------------------------------------- checks

local KINDS = {
  l = { load = load_log, judge = judge_log, reset = reset_log, write = write_log, note = note_log },
  w = { load = load_window, judge = judge_window, reset = reset_window, write = write_window, note = note_text },
  g = { load = load_level, judge = judge_level, reset = reset_level, write = write_level, note = note_text },
}

local next_arg = 3
local function arg()
  next_arg = next_arg + 1
  return ARGV[next_arg - 1]
end

local function read_shape()
  local shape = {}
  for i = 1, tonumber(arg()) do
    local k = { kind = KINDS[arg()], trim = tonumber(arg()), ttl = arg(), limits = {} }
    for j = 1, tonumber(arg()) do
      local W, C, L = tonumber(arg()), tonumber(arg()), tonumber(arg())
      k.limits[j] = { W = W, C = C, L = L } -- C is nil for '-'
    end
    shape[i] = k
  end
  return shape
end

local next_key = 1
local function read_check(shapes)
  local check = { shape = shapes[tonumber(arg())], op = arg(), cost = tonumber(arg()), print = arg() }
  if check.print ~= '' then
    check.record, next_key = KEYS[next_key], next_key + 1
  end
  check.first_key, next_key = next_key, next_key + #check.shape
  local ceilings, n = {}, 0
  for _, k in ipairs(check.shape) do
    for _, l in ipairs(k.limits) do
      n = n + 1
      ceilings[n] = l.C or tonumber(arg())
    end
  end
  check.ceilings = ceilings
  return check
end

-- Partitions that several checks of one call share are read once: TIME does not move
-- in between, so what was found stays true, and each charge is added to it.
local states = {}

local function state(check, i)
  local key = KEYS[check.first_key + i - 1]
  local k, s = check.shape[i], states[key]
  if not s or s.shape ~= k then -- a reload may meet the shape before it in one call
    s = k.kind.load(key, k)
    s.shape = k
    states[key] = s
  end
  return s
end

local function replay(check)
  local v = call('GET', check.record)
  if not v then return nil end
  local stamp, print, reply = match(v, '^(%d+) (%S+) (.*)$')
  if not stamp then error('GARBAGE in the record ' .. check.record, 0) end
  if tonumber(stamp) + IDEMPOTENCY_US <= TIME then return nil end -- as good as expired
  if print ~= check.print then return 'x' end
  return 'm' .. reply
end

-- decide reads and validates every key before the first write, so that what fails changes nothing.
local function decide(check)
  if check.record then
    local earlier = replay(check)
    if earlier then return earlier end
  end
  local shape, c = check.shape, check.cost
  local out, n, fits = {}, 0, true
  for i = 1, #shape do
    local k, s = shape[i], state(check, i)
    for _, l in ipairs(k.limits) do
      local remaining, waits = k.kind.judge(s, l, check.ceilings[n + 1], c)
      n = n + 1
      out[3 * n - 2], out[3 * n - 1] = remaining, waits
      if waits ~= 0 then fits = false end
    end
  end
  local charged = check.op == 'r' or check.op == 'c' and fits
  for i = 1, #shape do
    local k, s = shape[i], states[KEYS[check.first_key + i - 1]]
    if charged then
      k.kind.write(s, k, c)
    elseif s.stepped and check.op == 'c' then
      k.kind.note(s, k)
      s.stepped = false
    end
  end
  n = 0
  for i = 1, #shape do
    local k, s = shape[i], states[KEYS[check.first_key + i - 1]]
    for _, l in ipairs(k.limits) do
      n = n + 1
      if charged then out[3 * n - 2], out[3 * n - 1] = max(0, out[3 * n - 2] - c), 0 end
      out[3 * n - 2], out[3 * n - 1] = int(out[3 * n - 2]), int(out[3 * n - 1])
      out[3 * n] = int(k.kind.reset(s, l))
    end
  end
  local reply = ' ' .. concat(out, ' ')
  if charged and check.record then
    call('SET', check.record, int(TIME) .. ' ' .. check.print .. reply, 'PX', IDEMPOTENCY_US / 500)
  end
  return ((charged or fits) and 'a' or 'd') .. reply
end

local shapes = {}
for i = 1, tonumber(ARGV[2]) do shapes[i] = read_shape() end
local replies = { ARGV[1] .. ' ' .. int(TIME) }
while next_arg <= #ARGV do
  local check = read_check(shapes)
  local ok, reply = pcall(decide, check)
  if not ok then
    for i = 1, #check.shape do states[KEYS[check.first_key + i - 1]] = nil end
    reply = 'e ' .. (type(reply) == 'table' and reply.err or reply)
  end
  replies[#replies + 1] = reply
end
return replies
