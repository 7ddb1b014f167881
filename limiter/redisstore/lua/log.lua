-- log.lua: a log is a list with one element for each admission, oldest first.
--
--   '1795198405260197'        cost 1: its stamp (Redis packs it into ten bytes)
--   '1795198405260197:57:4'   stamp : units admitted before it : its cost, which begins with a zero in every
--                             other run of such elements
--   either + '+3600000000'    the offset of the partition's clock, while it has one
--
-- Behind the stamp of the oldest element stands the log's header: what limits have needed of it lately. It is longer
-- than the plan in force where a reload has lowered a limit, or processes have different files:
--
--   '.0' '03' '100' '60000000'        of the plan that was charged last: units (their digits first), longest W (µs)
--   ',250,60000000,1795198525260197'  of each former plan that needs more, and until when (partition's clock): twice
--                                     its W after its last charge
--
-- The first alone is a fraction that rounds to nothing, so stamp and header are read as one number.
--
-- A cost above 1 begins a run, and the log gets only such elements until each one in it costs 1 and is of
-- that run; then it gets plain ones again. So whatever stands before the run that the log ends with costs 1,
-- and a log that ends with a plain element has as many units as elements.
--
-- The state of a log in this call, with every field from the start, since a Lua table that grows is slow: key,
-- k (its part of the plan), newest (stamp), now, time (its TIME), offset, kept (the one that was read), stepped (see tick),
-- tail (the newest element), front (the oldest),
-- size, head (stamp of the oldest), all false until known, sum (units admitted so far, false after a plain element), run
-- ('0' or '', before each cost), from and base (see from), added (units of this call), and at [j] those in the j-th limit's
-- window before it.

-- entry returns the stamp of an element, and of a run's the units before it, its cost, offset and run.
local function entry(s, e)
  if tonumber(e) then return stamp_of(s.key, e) end
  local stamp, before, run, cost, offset = match(e or '', '^(%d+)[%d.,]*:(%d+):(0?)(%d+)%+?(%d*)$')
  if not stamp then stamp, offset = match(e or '', '^(%d+)[%d.,]*%+?(%d*)$') end
  if not stamp then error('GARBAGE in ' .. s.key, 0) end
  return whole(stamp, s.key), whole(before, s.key), whole(cost, s.key), whole(offset, s.key), run
end

local function at(s, i) return entry(s, call('LINDEX', s.key, i)) end

local function stamp_at(s, i) return stamp_of(s.key, call('LINDEX', s.key, i)) end

local function load_log(key, k)
  local tail = call('LINDEX', key, '-1')
  local s = {
    false, false, false, key = key, k = k, newest = 0, now = TIME, time = TIME, offset = 0, kept = 0, stepped = false, tail = tail,
    front = false, size = false, head = false, sum = false, run = '', from = false, base = 0, added = 0,
  }
  if not tail then
    s.size = 0
    return s
  end
  local stamp, before, cost, kept, run = entry(s, tail)
  s.newest = stamp
  if kept or TIME < stamp then tick(s, stamp, kept or 0, stamp + k.longest) end
  if kept then s.kept = kept end
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

-- place is the index of the element that holds the n-th newest unit, below 0 for none.
local function place(s, n)
  if not s.sum then return s.size - n end
  local first, base = from(s)
  if n > s.sum - base then return first - (n - (s.sum - base)) end
  local lo, hi = first, s.size -- the last element with at least n units from it to the end
  while hi - lo > 1 do
    local mid = floor((lo + hi) / 2)
    if units(s, mid) >= n then lo = mid else hi = mid end
  end
  return lo
end

-- edge is where the window of limit l begins: while its share is burnt not before the epoch, by the log's clock.
local function edge(s, l)
  return max(s.now - l.W, l.since and l.since + s.offset - 1 or 0)
end

-- used counts the units inside the window of limit l.
local function used(s, l)
  local u = s[l.j]
  if u then return u + s.added end
  local edge = edge(s, l)
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
  local edge = edge(s, l)
  if s.newest <= edge then return 0 end
  if c == 1 and not s.sum and not s[l.j] then
    local e = call('LINDEX', s.key, l.last or '-' .. int(C))
    local stamp = e and stamp_of(s.key, e) or 0
    return stamp <= edge and 0 or wait(s, stamp + l.W)
  end
  if used(s, l) + c <= C then return 0 end
  if not s.sum then return wait(s, stamp_at(s, int(c - C - 1)) + l.W) end
  return wait(s, stamp_at(s, int(place(s, C - c + 1))) + l.W)
end

-- left is what remains, below 0 what a global limit holds beyond its ceiling. A plain log that denies cost 1
-- under a regional limit is full, which needs no counting.
local function left_log(s, l, C, c, waits)
  if l.bucket then return C - used(s, l) end
  if C == 0 or waits > 0 and c == 1 and not s.sum then return 0 end
  return max(0, C - used(s, l))
end

local function reset_log(s, l)
  if s.newest <= edge(s, l) then return 0 end
  return wait(s, s.newest + l.W)
end

local MOST_W, FORMER = 2678400000000, 3 -- the longest window, µs; how many former plans a header names

-- trim is the largest L of a plan's limits.
local function trim(k) return tonumber(sub(k.mark, 5, 4 + tonumber(sub(k.mark, 3, 4)))) end

-- needed returns how many units and which window the limits of the plan and those lately in force need, the header that
-- says so, and whether that is another one.
local function needed(s, k)
  local own, ends = trim(k), STAMP + #k.mark
  local follows = sub(s.front, ends + 1, ends + 1)
  if sub(s.front, STAMP + 1, ends) == k.mark and not match(follows, '[%d,]') then return own, k.longest, k.mark end
  local header = match(s.front, '^%d+([%d.,]*)') or ''
  local former, most = {}, { own, 0, 0 }
  local function add(units, W, ends)
    if ends <= s.now or units <= own and W <= k.longest then return end
    former[#former + 1] = ',' .. int(units) .. ',' .. int(W) .. ',' .. int(ends)
    most = { max(most[1], units), max(most[2], W), max(most[3], ends) }
  end
  local digits, last = match(header, '^%.0(%d%d)(%d+)')
  digits = tonumber(digits)
  if digits then
    local W = tonumber(sub(last, digits + 1)) or MOST_W
    add(tonumber(sub(last, 1, digits)), W, s.newest + 2 * W)
  end
  for units, W, ends in string.gmatch(header, ',(%d+),(%d+),(%d+)') do add(tonumber(units), tonumber(W), tonumber(ends)) end
  if #former > FORMER then former = { ',' .. int(most[1]) .. ',' .. int(most[2]) .. ',' .. int(most[3]) } end
  local now = k.mark .. table.concat(former)
  return most[1], max(k.longest, most[2]), now, now ~= header
end

-- beyond returns how many of the oldest elements are outside a window, or out of reach of the newest units if that is
-- more; of a run not always all.
local function beyond(s, need, window)
  local edge, dead = s.now - window, 0
  s.head = s.head or stamp_of(s.key, s.front)
  if s.head <= edge then dead = oldest(s.key, s.head, s.newest, s.size, edge) end
  for _, i in ipairs(s.sum and { floor(s.size / 2), EVERY } or {}) do
    local before, run = match(call('LINDEX', s.key, '' .. i) or '', '^%d+:(%d+):(0?)')
    if run == s.run and s.sum - before >= need then return max(dead, i) end
  end
  return max(dead, s.size - need)
end

local function write_log(s, k, c)
  if k.time then -- TIME may be that of a step that nobody else will see: the clock stays where it is
    s.time, s.now, s.offset = k.time, max(s.newest, k.time + s.kept), s.kept
  end
  local key, e, need, window, header = s.key, s.now == TIME and NOW or int(s.now), nil, k.longest, k.mark
  local before, run, changed -- of the oldest
  if not s.tail then
    e, need = e .. header, trim(k)
  else
    s.front = s.front or call('LINDEX', key, '0')
    need, window, header, changed = needed(s, k)
  end
  c = min(c, need) -- a report beyond the largest limit denies no longer than one of its size
  if s.sum or c > 1 then
    s.size = s.size or call('LLEN', key)
    before, run = match(s.front or '', '^[%d.,]+:(%d+):(0?)')
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
  if s.size == 1 then s.head, s.front = s.now, e end
  expire(key, k, s.size)
  s.tail, s.newest, s.stepped, s.added = e, s.now, false, s.added + c
  local drop = s.size % EVERY == 0 and beyond(s, need, window) or 0
  if drop > 0 then
    cut(key, drop, header)
    s.size, s.head, s.front = s.size - drop, false, false
    if s.from then s.from = max(0, s.from - drop) end -- base may now be too low, which units and place allow
  elseif changed then
    s.front = sub(s.front, 1, STAMP) .. header .. match(s.front, '^[%d.,]*(.*)$')
    call('LSET', key, '0', s.front)
  end
end

-- refund reads what taking back the newest c units needs, and returns what then does it. What no limit needs any more goes
-- too, since the clock of a log may go back with its newest stamp.
local function refund_log(s, k, c)
  local key = s.key
  if not s.tail then return function() end end
  s.size, s.front = s.size or call('LLEN', key), s.front or call('LINDEX', key, '0')
  local need, window, header = needed(s, k)
  local edge, first = s.now - window, 0
  s.head = s.head or stamp_of(key, s.front)
  if s.newest <= edge then first = s.size elseif s.head <= edge then first = oldest(key, s.head, s.newest, s.size, edge) end
  first = max(first, place(s, need))
  local last = c < need and place(s, c) or -1
  local rest, excess = 0, 0 -- units of the last that stay, units of the first that do not
  if s.sum and last >= first then rest, excess = units(s, last) - c, max(0, units(s, first) - need) end
  if rest == 0 then last = last - 1 end
  if last < first then return function() call('UNLINK', key) end end
  local function element(i, head, mark)
    local stamp, before, cost, offset, run = at(s, int(i))
    local text, skip = int(stamp) .. head, i == first and excess or 0
    if i == last and rest > 0 then cost = rest end
    if before then text = text .. ':' .. int(before + skip) .. ':' .. run .. int(cost - skip) end
    return text .. (mark or offset and '+' .. int(offset) or '')
  end
  local tail = element(last, last == first and header or '', mark(s))
  local front = last > first and element(first, header)
  return function()
    call('LTRIM', key, int(first), int(last))
    call('LSET', key, '-1', tail)
    if front then call('LSET', key, '0', front) end
  end
end

-- note keeps a step of the clock that a denial was the first to see. It charges nothing and moves no counter on: TIME
-- may yet go back further.
local function note_log(s)
  s.tail, s.front, s.stepped = match(s.tail, '^[%d:.,]+') .. mark(s), false, false
  call('LSET', s.key, '-1', s.tail)
end
