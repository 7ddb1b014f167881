-- usage_counters.lua: the usage counters: what this region has admitted of a partition under one global limit.
-- Made when a plan has such a limit.
--
-- A hash:
--   'generation:bucket'   units of the newest bucket, see quota.Counter
--   'e'                   those of the one before it, if any
--   'h'                   'sequence units until' of what open holds have of the limit: quota.Gauge, as peers have to know it
--
--   'p'                   'ends number ends units' of a limit with a calendar, whose buckets are periods: when the newest ends, and the one
--                         before it in which anything was used, 0 for none. TIME counts in either: quota.Periods
--
-- generation is the TIME at which the key was created. Buckets follow TIME itself, not the partition's clock,
-- because peers read them against this region's TIME. The name of the bucket's field is what the ceiling rests on, so most
-- checks add to it without reading what is there.

local counters = {} -- of this call, by key; false where there is no key

local lost, count, reply_counter, add_counter, load_counter -- of usage_counters, once it was called
local write_gauge -- of holds, which is called before a counter with a gauge is read

local function usage_counters()
  local MAX_COUNTER = 4 * 1099511627776 -- quota.MaxCounter
  local SAME_KEY = 1000 -- quota.maxRenewals

  -- load reads the counter of a key, and raises for one that we cannot have written. Generation and bucket stay
  -- text, since most often they are only compared, and written again.
  local function load(key)
    local t = counters[key]
    if t ~= nil then return t end
    local v = call('HGETALL', key)
    t = false
    local gauge, periods
    for i = 1, #v, 2 do
      local generation, bucket = match(v[i], '^(%d+):(%d+)$')
      local units
      if v[i] == 'h' then
        local sequence, held, ends = match(v[i + 1], '^(%d+) (%d+) (%d+)$')
        units = whole(held, key)
        gauge = { sequence = whole(sequence, key), units = units, ends = whole(ends, key) }
      elseif v[i] == 'p' then
        local ends, number, ended, past = match(v[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
        units = whole(past, key)
        periods = { ends = whole(ends, key), past = { number = whole(number, key), ends = whole(ended, key), units = units } }
      else
        units = whole(v[i + 1], key)
        if generation and not t then
          t = { generation = generation, bucket = bucket, units = units }
        elseif v[i] ~= 'e' then
          units = nil
        end
      end
      if not units or units < 0 or units > MAX_COUNTER then error('GARBAGE in ' .. key, 0) end
    end
    if #v > 0 and not t then error('GARBAGE in ' .. key, 0) end
    if t then t.gauge = gauge end
    if periods and t then t.ends, t.past = periods.ends, periods.past end
    counters[key] = t
    return t
  end

  -- holds reads the counter of a key and reports whether it has all that was known of it: ARGV[p] is its generation
  -- (0 for nothing), then bucket and units. One that went back, in a failover to a replica that was behind, is
  -- dropped: the next charge begins another generation, so what it had counts as lost everywhere. It is
  -- quota.Counter.Holds.
  local function holds(key, p)
    local t = load(key)
    if t and t.generation == ARGV[p] and t.bucket == ARGV[p + 1] and t.units >= tonumber(ARGV[p + 2]) then return true end
    local generation, bucket = t and whole(t.generation, key), t and whole(t.bucket, key)
    if ARGV[p] == '0' then return true end
    local grown = t and generation - tonumber(ARGV[p])
    if not t or grown >= SAME_KEY or grown <= -SAME_KEY then return false end
    local ahead = grown ~= 0 and grown or bucket - tonumber(ARGV[p + 1])
    if ahead == 0 then ahead = t.units - tonumber(ARGV[p + 2]) end
    if ahead >= 0 then return true end
    call('UNLINK', key)
    counters[key] = false
    return false
  end

  -- reply adds a counter to the reply. Of a limit with a calendar it is that of the period now, or without one of the newest.
  local function reply(key, l, now)
    local t = counters[key]
    if t then
      replies[r + 1], replies[r + 2], replies[r + 3] = t.generation, t.bucket, t.units
    else
      replies[r + 1], replies[r + 2], replies[r + 3] = 0, 0, 0
    end
    r = r + 3
    if not l or l.k.kind ~= 'p' then return end
    r = r + 1
    replies[r] = now and now.ends or t and t.ends or 0
    if now and not (t and tonumber(t.bucket) == now.number) then
      replies[r - 2] = now.number
      replies[r - 1] = t and t.past.number == now.number and t.past.units or 0
    end
  end

  -- add_period charges c units to the counter of limit l, which was read, in the period now: the one that counts under its key.
  local function add_period(key, l, c, now)
    local t = counters[key]
    local was = t and t.generation .. ':' .. t.bucket
    t = t or { generation = NOW, bucket = int(now.number), units = 0, past = { number = 0, ends = 0, units = 0 } }
    local charged, newest = t, tonumber(t.bucket)
    if now.number > newest then
      t.past = { number = newest, ends = t.ends, units = t.units }
      t.bucket, t.units = int(now.number), 0
    elseif now.number < t.past.number then -- TIME stepped back: its periods are counted anew, see quota.SameKey
      t.generation, t.bucket, t.units = int(tonumber(t.generation) + 1), int(now.number), 0
      t.past = { number = 0, ends = 0, units = 0 }
    elseif now.number < newest then
      if now.number > t.past.number then t.past = { number = now.number, ends = now.ends, units = 0 } end
      charged = t.past
    end
    charged.ends, charged.units = now.ends, min(charged.units + c, MAX_COUNTER)
    counters[key] = t
    local field = t.generation .. ':' .. t.bucket
    if was and was ~= field then call('UNLINK', key) end
    local past = t.past
    call('HSET', key, field, int(t.units), 'p', format('%.0f %.0f %.0f %.0f', t.ends, past.number, past.ends, past.units))
    call('PEXPIRE', key, int(l.k.ttl + ceil(max(0, t.ends - TIME) / 1000)))
    if was ~= field and t.gauge then write_gauge(key, t) end
  end

  -- add charges c units to the counter of limit l, which was read. now is the period that counts, of a limit with a calendar.
  local function add(key, l, c, now)
    if now then return add_period(key, l, c, now) end
    local t = counters[key] or { generation = NOW, bucket = l.bucket, units = 0 }
    local moved, before = l.bucket - t.bucket, t.units
    if moved < -1 then -- TIME stepped back: its buckets are counted anew, see quota.SameKey
      t.generation, t.bucket, t.units = int(tonumber(t.generation) + 1), l.bucket, 0
    elseif moved > 0 then
      t.bucket, t.units = l.bucket, 0
    end -- a fall of less than a bucket is waited out in the newest
    t.units = min(t.units + c, MAX_COUNTER)
    local field = t.generation .. ':' .. t.bucket
    if counters[key] and (moved == 0 or moved == -1) then
      call('HSET', key, field, int(t.units))
      return
    end
    counters[key] = t
    call('UNLINK', key)
    call('HSET', key, field, int(t.units))
    if moved == 1 then call('HSET', key, 'e', int(before)) end
    call('PEXPIRE', key, longer(l.k))
    if t.gauge then write_gauge(key, t) end
  end

  -- increase adds a unit to a counter that has all that was known of it, in the bucket of now, and returns how many it
  -- has then; false: it is another one, or cannot be read, and nothing was added.
  local function increase(key, l, p)
    if ARGV[p + 1] ~= l.bucket then return false end
    local field = ARGV[p] .. ':' .. l.bucket
    local ok, units = pcall(call, 'HINCRBY', key, field, '1')
    if not ok then return false end
    if units > 1 and units > tonumber(ARGV[p + 2]) and units <= MAX_COUNTER then return units end
    if units == 1 then call('HDEL', key, field) else call('HINCRBY', key, field, '-1') end
    return false
  end

  local counted = {} -- while count runs: what increase returned

  -- count adds a unit to each counter of a plan, unless one of them does not hold what its ceiling rests on or cannot be
  -- read: then to none, and it returns false. at is the place before the counters, known that of the first ceiling.
  local function count(plan, at, known)
    local limits, ok = plan.globals, true
    for i = 1, #limits do
      local key, p = KEYS[at + i], known + 4 * i - 3
      counted[i] = ok and increase(key, limits[i], p)
      if ok and not counted[i] then
        local read, held = pcall(holds, key, p)
        ok = read and held
      end
    end
    for i = 1, #limits do
      local key, l, p = KEYS[at + i], limits[i], known + 4 * i - 3
      if not ok then
        if counted[i] then call('HINCRBY', key, ARGV[p] .. ':' .. l.bucket, '-1') end
      elseif counted[i] then
        counters[key] = { generation = ARGV[p], bucket = l.bucket, units = counted[i] }
      else
        add(key, l, 1)
      end
    end
    return ok
  end

  -- drop_periods drops the periods beside a counter that was dropped: what it had counts as lost, and would count here once more,
  -- until the period ends. A bound goes by what is here alone. at is the place before the counters.
  local function drop_periods(plan, at, k)
    for i = 1, #plan do
      if plan[i] == k then
        local key = KEYS[at - #plan + i]
        call('UNLINK', key)
        states[key] = nil
      end
    end
  end

  -- any_lost replies to a check where a counter does not hold what its ceiling rests on, and returns whether one does
  -- not. at is the place before the counters, known the place of the first ceiling.
  local function any_lost(plan, at, known)
    local gone = false
    for i = 1, #plan.globals do
      local key, l = KEYS[at + i], plan.globals[i]
      local there = load(key)
      if not holds(key, known + 4 * i - 3) then
        gone = true
        if l.k.kind == 'p' and not l.bound and there and not counters[key] then drop_periods(plan, at, l.k) end
      end
    end
    if not gone then return false end
    r = r + 1
    replies[r] = 'l'
    for i = 1, #plan.globals do reply(KEYS[at + i], plan.globals[i]) end
    return true
  end

  return any_lost, count, reply, add, load
end
