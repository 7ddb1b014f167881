-- quick.lua: the common checks, decided without a state: those of cost 1 on logs that end with a plain element.

-- fresh is whether none of the keys of a check has a state, which a charge by quick would make wrong.
local function fresh(plan, first)
  for i = 1, #plan do
    if states[KEYS[first + i]] then return false end
  end
  return true
end

-- stamp_of is the stamp of an element of a log.
local function stamp_of(key, e)
  local stamp = tonumber(e) or e and tonumber((match(e, '^(%d+)[:+.]')))
  if stamp and stamp > 0 and stamp < MAX and stamp % 1 == 0 then return stamp end
  error('GARBAGE in ' .. key, 0)
end

-- oldest returns the index of the oldest element inside the window that begins at edge, given that the oldest of
-- all, head, is outside and the newest is inside. Stamps are times and traffic is roughly even, so it looks where the
-- edge should be, from there in steps that double until they pass it, and then halves what is left.
local function oldest(key, head, newest, size, edge)
  local lo, hi, step, passed, before = 0, size - 1, 1, false, nil
  local mid = floor((edge - head) / (newest - head) * hi)
  while hi - lo > 1 do
    mid = max(lo + 1, min(hi - 1, mid))
    local inside = stamp_of(key, call('LINDEX', key, '' .. mid)) > edge
    if inside then hi = mid else lo = mid end
    passed = passed or before == not inside
    if passed then
      mid = floor((lo + hi) / 2)
    else
      mid, step, before = inside and mid - step or mid + step, 2 * step, inside
    end
  end
  return hi
end

local STAMP = 16 -- digits of a stamp
local EVERY = 8 -- so many elements are dropped at once, when no limit needs them any more

-- cut drops the oldest elements of a log. The one that is the oldest then gets the header.
local function cut(key, drop, header)
  local e = call('LINDEX', key, '' .. drop)
  call('LTRIM', key, '' .. drop, '-1')
  call('LSET', key, '0', sub(e, 1, STAMP) .. header .. sub(e, STAMP + 1))
end

-- expire sets how long a log lives after an admission: so long that in the next window it need not be set. During a
-- reload another plan may ask for less, which does not count while it asks for more.
local function expire(key, k, size)
  if size == 1 then
    call('PEXPIRE', key, k.ttl)
  else
    call('PEXPIRE', key, longer(k), 'GT')
  end
end

-- oldest_element is the oldest of a log, which has the header, so of one element the newest too.
local function oldest_element(key, tail) return #tail > STAMP and tail or call('LINDEX', key, '0') end

local rooms = {} -- what remains of each limit, while quick runs
-- While quick runs, of each log: how many of its oldest elements are outside its longest window, false for all, and the
-- newest stamp inside, 0 for none.
local outside, latest = {}, {}

-- quick decides a check and replies to it. first is the place before the keys; where a limit is global, ceilings are those
-- of all, and known is the place of the first in ARGV. It returns nil, having written nothing, for whatever is
-- not common: a denial by one of several windows or by a global limit, a counter that does not hold what is known of it,
-- and a log whose header is not that of its plan.
local function quick(first, plan, ceilings, known)
  local n = 0
  for i = 1, #plan do
    local k, key = plan[i], KEYS[first + i]
    local tail, newest, size, front, head, dead = call('LINDEX', key, '-1'), 0, nil, nil, nil, 0
    if tail then
      newest = tonumber(tail) or 0
      if not (newest > 0 and newest <= TIME and newest % 1 == 0) then return nil end
      if newest <= k.edge then dead, newest = false, 0 end
    end
    for j = 1, #k do
      local l, u = k[j], 0
      n = n + 1
      local C = l.C or ceilings[n]
      if C < 1 then return nil end
      if newest > l.edge then
        size = size or call('LLEN', key)
        if size - dead >= C then
          local stamp = stamp_of(key, call('LINDEX', key, l.last or '-' .. C))
          if stamp > l.edge then
            if plan[2] or k[2] or l.bucket or stamp > newest then return nil end
            replies[r + 1], replies[r + 2], replies[r + 3], replies[r + 4] = 'd', 0, stamp + l.W - TIME, newest + l.W - TIME
            r = r + 4
            return true
          end
        end
        if not head then
          front = oldest_element(key, tail)
          head = stamp_of(key, front)
          if head <= k.edge then dead = oldest(key, head, newest, size, k.edge) end
        end
        local at = dead
        if l.edge > k.edge then at = head > l.edge and 0 or oldest(key, head, newest, size, l.edge) end
        u = size - at
      end
      rooms[n] = C - u - 1
    end
    if tail and sub(front or oldest_element(key, tail), STAMP + 1) ~= k.mark then return nil end
    outside[i], latest[i] = dead, newest
  end
  local counter = first + #plan
  if plan.globals and not count(plan, counter, known) then return nil end -- the first write
  n = 0
  for i = 1, #plan do
    local k, key, dead = plan[i], KEYS[first + i], outside[i]
    if not dead then call('UNLINK', key) end
    local size = call('RPUSH', key, latest[i] == 0 and NOW .. k.mark or NOW)
    if size < 3 or latest[i] < k.turn then expire(key, k, size) end
    if dead and dead >= EVERY then cut(key, dead, k.mark) end
    for j = 1, #k do
      local l = k[j]
      n, r = n + 1, r + 1
      replies[r] = rooms[n]
      if l.bucket then
        counter = counter + 1
        reply_counter(KEYS[counter])
        if l.bound then
          r = r + 1
          replies[r] = l.bound.C
        end
      end
    end
  end
  return true
end
