-- quick.lua: the common checks, decided without a state: those of cost 1 on logs that end with a plain element.

-- Partitions that several uncommon checks of one call share are read once: TIME does not move in between, so what
-- was found stays true, and each charge is added to it.
local states = {}

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
-- all, head, is outside and the newest is inside. Stamps are times and traffic is roughly even, so it interpolates,
-- and halves the range whenever that did not: a few reads, never more than twice log2(size).
local function oldest(key, head, newest, size, edge)
  local lo, below, hi, above, narrow = 0, head, size - 1, newest, true
  while hi - lo > 1 do
    local span, mid = hi - lo, floor((lo + hi) / 2)
    if narrow then
      mid = max(lo + 1, min(hi - 1, lo + floor((edge - below) / (above - below) * span)))
    end
    local stamp = stamp_of(key, call('LINDEX', key, '' .. mid))
    if stamp > edge then hi, above = mid, stamp else lo, below = mid, stamp end
    narrow = not narrow or hi - lo <= span / 2
  end
  return hi
end

local STAMP = 16 -- digits of a stamp
local EVERY = 8 -- a log is trimmed when its length is a multiple of this

-- cut drops the oldest elements of a log. The one that is the oldest then gets the header.
local function cut(key, drop, header)
  local e = call('LINDEX', key, '' .. drop)
  call('LTRIM', key, '' .. drop, '-1')
  call('LSET', key, '0', sub(e, 1, STAMP) .. header .. sub(e, STAMP + 1))
end

-- trim is the largest L of a plan's limits.
local function trim(k) return tonumber(sub(k.mark, 5, 4 + tonumber(sub(k.mark, 3, 4)))) end

-- expire sets how long a log lives after an admission. During a reload another plan may ask for less, which
-- does not count while it asks for more.
local function expire(key, k, size)
  if size == 1 then call('PEXPIRE', key, k.ttl) else call('PEXPIRE', key, k.ttl, 'GT') end
end

local rooms = {} -- what remains of each limit, while quick runs
local LONG = 64 -- elements
-- inside is by key, for long logs: k of the plan that looked last, and at [j] the index of the oldest element inside the
-- window of its j-th limit. TIME does not move in between. For a log that is empty it is false.
local inside = {}

-- quick decides a check and replies to it. first is the place before the keys, ceilings are those of the limits where one
-- is global. It returns nil, having written nothing, for whatever is not common: a denial by one of several windows or
-- by a global limit, and a log whose header is not that of its plan.
local function quick(first, plan, ceilings)
  local n = 0
  for i = 1, #plan do
    local k, key = plan[i], KEYS[first + i]
    local tail, newest, size, head, front = call('LINDEX', key, '-1'), 0, nil, nil, nil
    local memo = inside[key]
    if memo and memo.k ~= k then memo = nil end
    if tail then
      newest = tonumber(tail) or 0
      if not (newest > 0 and newest <= TIME and newest % 1 == 0) then return nil end
    end
    for j = 1, #k do
      local l, u = k[j], 0
      n = n + 1
      local C = l.C or ceilings[n]
      if C < 1 then return nil end
      if newest > l.edge then
        size = size or call('LLEN', key)
        if size >= C then
          local e = call('LINDEX', key, l.last or '-' .. C)
          local stamp = stamp_of(key, e)
          if stamp > l.edge then
            if plan[2] or k[2] or l.bucket or stamp > newest then return nil end
            replies[r + 1], replies[r + 2], replies[r + 3], replies[r + 4] = 'd', 0, stamp + l.W - TIME, newest + l.W - TIME
            r = r + 4
            return true
          end
          if size == C then head, front = stamp, e end
        end
        local at = memo and memo[j]
        if not at then
          if not head then
            front = size == 1 and tail or call('LINDEX', key, '0')
            head = stamp_of(key, sub(front, 1, STAMP))
          end
          at = head > l.edge and 0 or oldest(key, head, newest, size, l.edge)
          if size > LONG then
            memo = memo or { k = k }
            memo[j] = at
          end
        end
        u = size - at
      end
      rooms[n] = C - u - 1
    end
    if not tail then
      inside[key] = false
    else
      if not memo or front then
        if sub(front or call('LINDEX', key, '0'), STAMP + 1) ~= k.mark then return nil end
      end
      inside[key] = memo or nil
    end
  end
  local counter = first + #plan
  n = 0
  for i = 1, #plan do
    local k, key = plan[i], KEYS[first + i]
    local size = call('RPUSH', key, inside[key] == false and NOW .. k.mark or NOW)
    expire(key, k, size)
    local drop, memo = size % EVERY == 0 and size - trim(k) or 0, inside[key]
    if drop > 0 then cut(key, drop, k.mark) end
    for j = 1, #k do
      local l = k[j]
      if drop > 0 and memo and memo[j] then memo[j] = max(0, memo[j] - drop) end
      n, r = n + 1, r + 1
      replies[r] = rooms[n]
      if l.bucket then
        counter = counter + 1
        add_counter(KEYS[counter], l, 1, k.ttl)
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
