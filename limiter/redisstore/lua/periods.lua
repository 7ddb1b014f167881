-- periods.lua: the kind that counts by periods of a calendar.
--
--   'number:ends:units:number:ends:units'   the newest period and the older one, 0:0:0 for none: quota.Periods

local function periods() -- made when a plan asks for it
  local MAX_HELD = 4 * 1099511627776 -- quota.MaxCounter

  -- load reads the state at TIME, with a place for what counts then: quota.Periods.At.
  local function load(key, k)
    local near, at = k.near, 1
    if TIME < near[1].begins or TIME >= near[4].begins then error('AGAIN', 0) end -- the caller took TIME for another
    while TIME >= near[at + 1].begins do at = at + 1 end
    local v, newest, older = call('GET', key), { number = 0, ends = 0, units = 0 }, { number = 0, ends = 0, units = 0 }
    if v then
      local n, e, u, m, f, w = match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$')
      if not n then error('GARBAGE in ' .. key, 0) end
      newest = { number = whole(n, key), ends = whole(e, key), units = whole(u, key) }
      older = { number = whole(m, key), ends = whole(f, key), units = whole(w, key) }
      if newest.units > MAX_HELD or older.units > MAX_HELD then error('GARBAGE in ' .. key, 0) end
    end
    local now, counts = { number = near[at].number, ends = near[at + 1].begins, units = 0 }, newest
    if TIME < older.ends then
      counts = older
    elseif TIME >= newest.ends then
      if now.number <= newest.number then -- that one is over, as answers have said
        if at == 3 then error('AGAIN', 0) end
        now.number, now.ends = max(near[at + 1].number, newest.number + 1), near[at + 2].begins
      end
      older = newest
      newest, counts = now, now
    elseif now.number < newest.number and now.number > older.number then
      older, counts = now, now
    end
    return { key = key, k = k, text = v, newest = newest, older = older, counts = counts, used = counts.units }
  end

  -- falls is how long until at most room units are used, which are not now: quota.Periods.Falls.
  local function falls(s, room)
    local n, o = s.newest, s.older
    if s.counts == o and n.number == o.number + 1 and n.units > room then return max(n.ends, o.ends) - TIME end
    return s.counts.ends - TIME
  end

  local function fits(s, _, C, c)
    if c > C then return -1 end
    return s.used + c <= C and 0 or falls(s, C - c)
  end

  local function left(s, l, C) return l.bucket and C - s.used or max(0, C - s.used) end

  local function reset(s) return s.used > 0 and falls(s, 0) or 0 end

  local function write(s, k, c)
    s.counts.units = max(0, min(s.counts.units + c, MAX_HELD))
    s.used = s.counts.units
    local n, o = s.newest, s.older
    s.text = format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', n.number, n.ends, n.units, o.number, o.ends, o.units)
    call('SET', s.key, s.text, 'PX', int(k.ttl + ceil(max(0, n.ends - TIME) / 1000)))
  end

  local function refund(s, k, c)
    return function()
      if s.text then write(s, k, -c) end
    end
  end

  return { load = load, fits = fits, left = left, reset = reset, write = write, refund = refund }
end

local calendar -- periods(), once a plan has asked for it

-- counting is the period that counts under a key of a plan, nil if it has none.
local function counting(key, k)
  if k.kind ~= 'p' then return nil end
  calendar = calendar or periods()
  local s = states[key]
  if not s or s.k ~= k then
    s = calendar.load(key, k)
    states[key] = s
  end
  return s.counts, s.newest.number > s.counts.number
end
