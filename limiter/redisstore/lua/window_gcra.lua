-- window_gcra.lua: the kinds that keep a few numbers in a string, made when a plan asks for them.
--
--   window 'W:start:prev:cur:stamp:offset'   quota.Buckets
--   level  'W:units:frac:stamp:offset'       quota.Level

local function window_gcra()
  local MAX_HELD = 4 * 1099511627776 -- quota.maxHeld

  -- muldiv returns quotient and remainder of a*b/d, exact: long division by ten bits of a at a time
  -- where the product would pass 2^53. a < 2^50; b, d <= 2^42.
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

  local function put(s, k, text)
    s.text, s.stepped = text .. ':' .. int(s.offset), false
    local drain = s.units and ceil((s.falls(s, k[1], 0) - s.now) / 1000) or 0
    call('SET', s.key, s.text, 'PX', int(k.ttl + drain))
  end

  local function note(s, k) put(s, k, match(s.text, '^(.*):')) end

  local function judge(s, l, C, c)
    if c > C then return -1 end
    if s.used + c <= C then return 0 end
    return wait(s, s.falls(s, l, C - c))
  end

  local function left(s, l, C) return l.bucket and C - s.used or max(0, C - s.used) end

  local function reset(s, l)
    if s.used == 0 then return 0 end
    return wait(s, s.falls(s, l, 0))
  end

  local function fades(n, room, W)
    if n <= room then return 0 end
    return W - (muldiv(room, W, n))
  end

  -- window_falls is the partition's time at which at most room units are used.
  local function window_falls(s, l, room)
    if s.cur <= room then return s.start + fades(s.prev, room - s.cur, l.W) end
    return s.start + l.W + fades(s.cur, room, l.W)
  end

  local function window_used(s, W)
    return muldiv_up(s.prev, W - (s.now - s.start), W) + s.cur
  end

  local function load_window(key, k)
    local W, v = k[1].W, call('GET', key)
    local was, prev, cur, newest, kept = W, 0, 0, 0, 0
    if v then
      was, prev, cur, newest, kept = match(v, '^(%d+):%d+:(%d+):(%d+):(%d+):(%d+)$')
      if not was then error('GARBAGE in ' .. key, 0) end
      was, prev, cur, newest, kept = whole(was, key), whole(prev, key), whole(cur, key), whole(newest, key), whole(kept, key)
      if was < 1 or prev > MAX_HELD or cur > MAX_HELD then error('GARBAGE in ' .. key, 0) end
    end
    local s = { key = key, k = k, text = v, start = newest - newest % was, prev = prev, cur = cur, now = newest, falls = window_falls }
    if was ~= W then -- another window: all that was used at the last charge counts as spent then
      s.cur = window_used(s, was)
      s.start, s.prev = newest - newest % W, 0
    end
    tick(s, newest, kept, s.cur > 0 and s.start + 2 * W or s.prev > 0 and s.start + W or newest)
    local start = s.now - s.now % W
    if start ~= s.start then
      s.prev, s.cur = start == s.start + W and s.cur or 0, 0
      s.start = start
    end
    s.used = window_used(s, W)
    return s
  end

  local function write_window(s, k, c)
    s.cur, s.newest = min(s.cur + c, MAX_HELD), s.now
    s.used = window_used(s, k[1].W)
    put(s, k, format('%.0f:%.0f:%.0f:%.0f:%.0f', k[1].W, s.start, s.prev, s.cur, s.now))
  end

  -- A refund returns what writes it.
  local function refund_window(s, k, c)
    return function()
      local newest = min(c, s.cur)
      s.prev, s.cur = s.prev - min(c - newest, s.prev), s.cur - newest
      if s.text then write_window(s, k, 0) end
    end
  end

  local function level_falls(s, l, room)
    local q, r = muldiv(s.units - room, l.W, l.L)
    return s.now + q + ceil((r + s.frac) / l.L)
  end

  local function load_level(key, k)
    local W, L, v = k[1].W, k[1].L, call('GET', key)
    local was, n, frac, newest, kept = W, 0, 0, 0, 0
    if v then
      was, n, frac, newest, kept = match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+)$')
      if not was then error('GARBAGE in ' .. key, 0) end
      was, n, frac = whole(was, key), whole(n, key), whole(frac, key)
      if was < 1 or n > MAX_HELD or frac >= was then error('GARBAGE in ' .. key, 0) end
    end
    newest, kept = whole(newest, key), whole(kept, key)
    local f = muldiv_up(frac, W, was)
    n, frac = min(n + floor(f / W), 4 * k[1].C), f % W
    local s = { key = key, k = k, text = v }
    local drain, rest = muldiv(n, W, L)
    tick(s, newest, kept, newest + drain + ceil((rest + frac) / L))
    local elapsed = s.now - s.newest
    local whole = floor(elapsed / W)
    if whole > floor(n / L) then
      n, frac = 0, 0
    else
      local q, r = muldiv(elapsed - whole * W, L, W)
      n, frac = n - whole * L - q, frac - r
      if frac < 0 then n, frac = n - 1, frac + W end
      if n < 0 then n, frac = 0, 0 end
    end
    s.units, s.frac, s.falls = n, frac, level_falls
    s.used = frac > 0 and n + 1 or n
    return s
  end

  local function write_level(s, k, c)
    s.units, s.newest = min(s.units + c, 4 * k[1].C), s.now
    s.used = s.frac > 0 and s.units + 1 or s.units
    put(s, k, format('%.0f:%.0f:%.0f:%.0f', k[1].W, s.units, s.frac, s.now))
  end

  local function refund_level(s, k, c)
    return function()
      if c > s.units then s.units, s.frac = 0, 0 else s.units = s.units - c end
      if s.text then write_level(s, k, 0) end
    end
  end

  return { load = load_window, fits = judge, left = left, reset = reset, write = write_window, refund = refund_window, note = note },
    { load = load_level, fits = judge, left = left, reset = reset, write = write_level, refund = refund_level, note = note }
end
