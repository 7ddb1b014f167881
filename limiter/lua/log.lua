-- log.lua: a log is a list with one element for each admission, oldest first.
--
--   '1795198405260197'        cost 1: its stamp (Redis packs it into ten bytes)
--   '1795198405260197:57:4'   stamp : units admitted before it : its cost. From the first cost above 1
--                             on, a log gets only these until it expires.
--   either + '+3600000000'    the offset of the partition's clock, while it has one
--
-- The state of a log in this call, with every field from the start, since a Lua table that grows is slow:
-- key, k (its part of the plan), newest (stamp), now, offset and stepped (see tick), tail (the newest element), size
-- (false until known), head (stamp of the oldest, likewise), sum (units admitted up to now, false while all
-- elements are plain), from and base (see weighted), added (units charged in this call), kept (whether its
-- TTL was set), and at [j] the units inside the window of the j-th limit before what was added.

local function entry(s, e)
  local stamp = tonumber(e)
  if stamp then
    if stamp > 0 and stamp < MAX and stamp % 1 == 0 then return stamp end
  elseif e then
    local at, before, cost, offset = match(e, '^(%d+):(%d+):(%d+)%+?(%d*)$')
    if not at then at, offset = match(e, '^(%d+)%+(%d+)$') end
    if at then return whole(at, s.key), whole(before, s.key), whole(cost, s.key), whole(offset, s.key) end
  end
  error('GARBAGE in ' .. s.key, 0)
end

local function at(s, i) return entry(s, call('LINDEX', s.key, i)) end

local function load_log(key, k)
  local tail = call('LINDEX', key, '-1')
  local s = {
    false, false, false, key = key, k = k, newest = 0, now = TIME, offset = 0, stepped = false, tail = tail,
    size = false, head = false, sum = false, from = false, base = 0, added = 0, kept = false,
  }
  if not tail then
    s.size = 0
    return s
  end
  local stamp, before, cost, kept = entry(s, tail)
  s.newest = stamp
  if kept or TIME < stamp then tick(s, stamp, kept or 0, stamp + k.longest) end
  if before then s.sum = before + cost end
  return s
end

-- weighted returns what only a log with costs above 1 needs: units and holder, made when first asked for.
local weighted_units, weighted_holder
local function weighted()
  if weighted_units then return weighted_units, weighted_holder end

  -- from is the index of the first element that carries its units, and the units before it.
  local function from(s)
    if not s.from then
      local lo, hi = -1, s.size - 1 -- the newest is one
      while hi - lo > 1 do
        local mid = floor((lo + hi) / 2)
        local _, before = at(s, int(mid))
        if before then hi = mid else lo = mid end
      end
      local _, before = at(s, int(hi))
      s.from, s.base = hi, before
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
    if n > s.sum - base then return (at(s, int(first - (n - (s.sum - base))))) end
    local lo, hi = first, s.size -- the last element with at least n units from it to the end
    while hi - lo > 1 do
      local mid = floor((lo + hi) / 2)
      if units(s, mid) >= n then lo = mid else hi = mid end
    end
    return (at(s, int(lo)))
  end

  weighted_units, weighted_holder = units, holder
  return units, holder
end

-- oldest returns the index of the oldest element inside the window, given that the oldest of all is
-- outside and the newest is inside. Stamps are times and traffic is roughly even, so it interpolates, and
-- halves the range whenever that did not: a few reads, never more than twice log2(size).
local function oldest(s, edge)
  local lo, below, hi, above, narrow = 0, s.head, s.size - 1, s.newest, true
  while hi - lo > 1 do
    local span, mid = hi - lo, floor((lo + hi) / 2)
    if narrow then
      mid = max(lo + 1, min(hi - 1, lo + floor((edge - below) / (above - below) * span)))
    end
    local stamp = at(s, int(mid))
    if stamp > edge then hi, above = mid, stamp else lo, below = mid, stamp end
    narrow = not narrow or hi - lo <= span / 2
  end
  return hi
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
    s.head = s.head or at(s, '0')
    local i = s.head > edge and 0 or oldest(s, edge)
    if s.sum then u = weighted()(s, i) else u = s.size - i end
  end
  s[l.j] = u - s.added
  return u
end

-- A cost c fits under C when the (C-c+1)-th newest unit is outside the window. At cost 1 that is one
-- element, and nothing is counted.
local function fits_log(s, l, C, c)
  if c > C then return -1 end
  local edge = s.now - l.W
  if s.newest <= edge then return 0 end
  if c == 1 and not s.sum and not s[l.j] then
    local e = call('LINDEX', s.key, l.last or '-' .. int(C))
    local stamp = e and entry(s, e)
    if not e or stamp <= edge then return 0 end
    return wait(s, stamp + l.W)
  end
  if used(s, l) + c <= C then return 0 end
  if not s.sum then return wait(s, at(s, int(c - C - 1)) + l.W) end
  local _, holder = weighted()
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

local function trim(s, most)
  local drop = s.size - most
  if drop <= 0 and s.sum and s.size > 1 then -- the oldest admission may be out of reach of the newest units
    local before, cost = match(call('LINDEX', s.key, '0'), ':(%d+):(%d+)')
    if before and s.sum - tonumber(before) - tonumber(cost) >= most then drop = 1 end
  end
  if drop <= 0 then return end
  if drop == 1 then call('LPOP', s.key) else call('LTRIM', s.key, int(drop), '-1') end
  s.size, s.head = s.size - drop, false
  if s.from then s.from = max(0, s.from - drop) end -- base may now be too low, which units and holder allow
end

local function write_log(s, k, c)
  c = min(c, k.trim) -- a report beyond the largest limit denies no longer than one of its size
  local e = s.offset == 0 and NOW or int(s.now)
  if s.sum or c > 1 then
    if not s.sum then
      s.size = s.size or call('LLEN', s.key)
      s.sum, s.from, s.base = s.size, s.size, s.size
    end
    e = e .. ':' .. int(s.sum) .. ':' .. int(c)
    s.sum = s.sum + c
  end
  e = e .. mark(s)
  s.tail, s.newest, s.stepped = e, s.now, false
  s.size = call('RPUSH', s.key, e)
  if s.size == 1 then s.head = s.now end
  if not s.kept then
    call('PEXPIRE', s.key, k.ttl)
    s.kept = true
  end
  s.added = s.added + c
  if s.size > k.trim or s.sum then trim(s, k.trim) end
end

local rooms = {} -- what remains of each limit, while quick runs

-- quick decides cost 1 on a plain log without a state: the common case by far, and a table costs as much as
-- two reads. first is the place before the key, ceilings are those of its limits where one is global. It returns
-- nil, having written nothing, for whatever is not common, a denial by one of several windows or by a global
-- limit included.
local function quick(first, k, ceilings)
  local key, counter = KEYS[first + 1], first + 1
  local size, newest, head = call('LLEN', key), 0, nil
  if size > 0 then
    newest = tonumber(call('LINDEX', key, '-1')) or 0
    if not (newest > 0 and newest <= TIME and newest % 1 == 0) then return nil end
    if size == 1 then head = newest end
  end
  for j = 1, #k do
    local l = k[j]
    local C = l.C or ceilings[j]
    if C < 1 then return nil end
    if size >= C and newest > TIME - l.W then
      local stamp = tonumber(call('LINDEX', key, l.last or '-' .. int(C))) or 0
      if stamp <= 0 or stamp > TIME - l.W then
        if k[2] or l.B or stamp <= 0 or stamp > newest then return nil end
        return format('d 0 %.0f %.0f', stamp + l.W - TIME, newest + l.W - TIME)
      end
      if size == C then head = stamp end
    end
  end
  if size > 0 then
    head = head or tonumber(call('LINDEX', key, '0')) or 0
    if head <= 0 then return nil end -- it is not a plain stamp
  end
  local s
  for j = 1, #k do
    local l, u = k[j], 0
    local edge = TIME - l.W
    if newest > edge then
      if head > edge then
        u = size
      else
        s = s or { key = key, head = head, newest = newest, size = size }
        u = size - oldest(s, edge)
      end
    end
    rooms[j] = (l.C or ceilings[j]) - u - 1
    if l.B then
      counter = counter + 1
      load_counter(KEYS[counter])
    end
  end
  call('RPUSH', key, NOW)
  -- A TTL costs as much as two reads, and has a margin of many seconds: the first of each second sets it.
  if newest < SECOND then call('PEXPIRE', key, k.ttl) end
  if size == k.trim then
    call('LPOP', key)
  elseif size > k.trim then
    trim({ key = key, size = size + 1, sum = false }, k.trim)
  end
  local reply = 'a'
  counter = first + 1
  for j = 1, #k do
    local l = k[j]
    reply = reply .. ' ' .. rooms[j] .. ' 0 ' .. l.w
    if l.B then
      counter = counter + 1
      reply = reply .. ' 0 ' .. add_counter(KEYS[counter], l, 1, k.ttl)
    end
  end
  return reply
end

-- note keeps a step of the clock that a denial was the first to see. It charges nothing and moves no counter on: TIME
-- may yet go back further.
local function note_log(s)
  s.tail, s.stepped = match(s.tail, '^[%d:]+') .. mark(s), false
  call('LSET', s.key, '-1', s.tail)
end
