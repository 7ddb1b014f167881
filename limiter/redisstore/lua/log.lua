-- log.lua: a log is a list with one element for each admission, oldest first.
--
--   '1795198405260197'        cost 1: its stamp (Redis packs it into ten bytes)
--   '1795198405260197:57:4'   stamp : units admitted before it : its cost, which begins with a zero in every
--                             other run of such elements
--   either + '+3600000000'    the offset of the partition's clock, while it has one
--
-- A cost above 1 begins a run, and the log gets only such elements until each one in it costs 1 and is of
-- that run; then it gets plain ones again. So whatever stands before the run that the log ends with costs 1,
-- and a log that ends with a plain element has as many units as elements.
--
-- The state of a log in this call, with every field from the start, since a Lua table that grows is slow: key,
-- k (its part of the plan), newest (stamp), now, offset, stepped (see tick), tail (the newest element), size, head (stamp
-- of the oldest), both false until known, sum (units admitted so far, false after a plain element), run ('0' or '', before
-- each cost), from and base (see from), added (units of this call), and at [j] those in the j-th limit's window before it.

-- entry returns the stamp of an element, and of a run's the units before it, its cost, offset and run.
local function entry(s, e)
  if tonumber(e) then return stamp_of(s.key, e) end
  local stamp, before, run, cost, offset = match(e or '', '^(%d+):(%d+):(0?)(%d+)%+?(%d*)$')
  if not stamp then stamp, offset = match(e or '', '^(%d+)%+(%d+)$') end
  if not stamp then error('GARBAGE in ' .. s.key, 0) end
  return whole(stamp, s.key), whole(before, s.key), whole(cost, s.key), whole(offset, s.key), run
end

local function at(s, i) return entry(s, call('LINDEX', s.key, i)) end

local function stamp_at(s, i) return stamp_of(s.key, call('LINDEX', s.key, i)) end

local function load_log(key, k)
  local tail = call('LINDEX', key, '-1')
  local s = {
    false, false, false, key = key, k = k, newest = 0, now = TIME, offset = 0, stepped = false, tail = tail,
    size = false, head = false, sum = false, run = '', from = false, base = 0, added = 0,
  }
  if not tail then
    s.size = 0
    return s
  end
  local stamp, before, cost, kept, run = entry(s, tail)
  s.newest = stamp
  if kept or TIME < stamp then tick(s, stamp, kept or 0, stamp + k.longest) end
  if before then s.sum, s.run = before + cost, run end
  return s
end

-- from is the index of the run's first element, and the units before it.
local function from(s)
  if not s.from then
    local lo, hi = -1, s.size
    while hi - lo > 1 do
      local mid = floor((lo + hi) / 2)
      local _, before, _, _, run = at(s, int(mid))
      if before and run == s.run then hi, s.base = mid, before else lo = mid end
    end
    s.from = hi
  end
  return s.from, s.base
end

-- units counts what stands in the log from element i to its end.
local function units(s, i)
  local first, base = from(s)
  if i < first then return first - i + s.sum - base end
  local _, before = at(s, int(i))
  return s.sum - before
end

-- holder returns the stamp of the element that holds the n-th newest unit.
local function holder(s, n)
  local first, base = from(s)
  if n > s.sum - base then return stamp_at(s, int(first - (n - (s.sum - base)))) end
  local lo, hi = first, s.size -- the last element with at least n units from it to the end
  while hi - lo > 1 do
    local mid = floor((lo + hi) / 2)
    if units(s, mid) >= n then lo = mid else hi = mid end
  end
  return stamp_at(s, int(lo))
end

-- used counts the units inside the window of limit l.
local function used(s, l)
  local u = s[l.j]
  if u then return u + s.added end
  local edge = s.now - l.W
  if s.newest <= edge then
    u = 0
  else
    s.size = s.size or call('LLEN', s.key)
    if not s.head then
      local stamp, before, _, _, run = at(s, '0')
      s.head = stamp
      if s.sum and not s.from and run == s.run then s.from, s.base = 0, before end
    end
    local i = s.head > edge and 0 or oldest(s.key, s.head, s.newest, s.size, edge)
    if s.sum then u = units(s, i) else u = s.size - i end
  end
  s[l.j] = u - s.added
  return u
end

-- A cost c fits under C when the (C-c+1)-th newest unit is outside the window. At cost 1 that is one
-- element, and nothing is counted.
local function fits_log(s, l, C, c)
  if c > C then return -1 end
  if s.newest <= s.now - l.W then return 0 end
  if c == 1 and not s.sum and not s[l.j] then
    local e = call('LINDEX', s.key, l.last or '-' .. int(C))
    local stamp = e and stamp_of(s.key, e) or 0
    return stamp <= s.now - l.W and 0 or wait(s, stamp + l.W)
  end
  if used(s, l) + c <= C then return 0 end
  if not s.sum then return wait(s, stamp_at(s, int(c - C - 1)) + l.W) end
  return wait(s, holder(s, C - c + 1) + l.W)
end

-- left is what remains, below 0 what a global limit holds beyond its ceiling. A plain log that denies cost 1
-- under a regional limit is full, which needs no counting.
local function left_log(s, l, C, c, waits)
  if l.B then return C - used(s, l) end
  if C == 0 or waits > 0 and c == 1 and not s.sum then return 0 end
  return max(0, C - used(s, l))
end

local function reset_log(s, l)
  if s.newest <= s.now - l.W then return 0 end
  return wait(s, s.newest + l.W)
end

local function write_log(s, k, c)
  c = min(c, k.trim) -- a report beyond the largest limit denies no longer than one of its size
  local key, e = s.key, s.now == TIME and NOW or int(s.now)
  local before, run, cost -- of the oldest
  if s.sum or c > 1 then
    s.size = s.size or call('LLEN', key)
    before, run, cost = match(call('LINDEX', key, '0') or '', '^%d+:(%d+):(0?)(%d+)')
    if not s.sum then
      s.sum, s.from, s.run = s.size + (before or 0), s.size, run == '' and '0' or ''
      s.base = s.sum
    elseif c == 1 and run == s.run and s.sum - before == s.size then
      s.sum = false
    end
  end
  if s.sum then
    e = e .. ':' .. int(s.sum) .. ':' .. s.run .. int(c)
    s.sum = s.sum + c
  end
  e = e .. mark(s)
  s.size = call('RPUSH', key, e)
  if s.size == 1 then s.head = s.now end
  expire(key, k, s.size)
  s.tail, s.newest, s.stepped, s.added = e, s.now, false, s.added + c
  local drop = s.size - k.trim
  if drop <= 0 and s.sum and before and s.sum - before - cost >= k.trim then drop = 1 end -- out of reach of the newest units
  if drop > 0 then
    cut(key, drop)
    s.size, s.head = s.size - drop, false
    if s.from then s.from = max(0, s.from - drop) end -- base may now be too low, which units and holder allow
  end
end

-- note keeps a step of the clock that a denial was the first to see. It charges nothing and moves no counter on: TIME
-- may yet go back further.
local function note_log(s)
  s.tail, s.stepped = match(s.tail, '^[%d:]+') .. mark(s), false
  call('LSET', s.key, '-1', s.tail)
end
