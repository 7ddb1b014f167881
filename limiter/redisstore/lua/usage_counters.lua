-- usage_counters.lua: the usage counters: what this region has admitted of a partition under one global limit.
-- Made when a plan has such a limit.
--
--   'generation:bucket:units:earlier'   quota.Counter of the newest bucket, then the units of the one before it, if any
--
-- generation is the TIME at which the key was created. Buckets follow TIME itself, not the partition's clock,
-- because peers read them against this region's TIME.

local counters = {} -- of this call, by key; false where there is no key

local lost, reply_counter, add_counter -- of usage_counters, once it was called

local function usage_counters()
  local MAX_COUNTER = 4 * 1099511627776 -- quota.MaxCounter
  local SAME_KEY = 1000 -- quota.maxRenewals

  -- load reads the counter of a key, and raises for one that we cannot have written. Generation and bucket stay
  -- text, since most often they are only compared, and written again.
  local function load(key)
    local t = counters[key]
    if t == nil then
      local v = call('GET', key)
      t = false
      if v then
        local generation, bucket, units, earlier = match(v, '^(%d+):(%d+):(%d+)(:?%d*)$')
        if not generation then error('GARBAGE in ' .. key, 0) end
        t = { generation = generation, bucket = bucket, units = whole(units, key), earlier = earlier }
        if t.units > MAX_COUNTER then error('GARBAGE in ' .. key, 0) end
      end
      counters[key] = t
    end
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

  -- reply adds a counter to the reply.
  local function reply(key)
    local t = counters[key]
    if t then
      replies[r + 1], replies[r + 2], replies[r + 3] = t.generation, t.bucket, t.units
    else
      replies[r + 1], replies[r + 2], replies[r + 3] = 0, 0, 0
    end
    r = r + 3
  end

  -- add charges c units to the counter of limit l.
  local function add(key, l, c, ttl)
    local t = counters[key]
    if not t then
      t = { generation = NOW, bucket = l.bucket, units = 0, earlier = '' }
      counters[key] = t
    elseif t.bucket ~= l.bucket then
      local moved = tonumber(l.bucket) - tonumber(t.bucket)
      if moved > 0 then
        t.earlier, t.bucket, t.units = moved == 1 and ':' .. t.units or '', l.bucket, 0
      elseif moved < -1 then -- TIME stepped back: its buckets are counted anew, see quota.SameKey
        t.generation, t.earlier, t.bucket, t.units = int(tonumber(t.generation) + 1), '', l.bucket, 0
      end -- a fall of less than a bucket is waited out in the newest
    end
    t.units = min(t.units + c, MAX_COUNTER)
    call('SET', key, t.generation .. ':' .. t.bucket .. ':' .. t.units .. t.earlier, 'PX', ttl)
  end

  -- any_lost replies to a check where a counter does not hold what its ceiling rests on, and returns whether one does
  -- not. at is the place before the counters, known the place of the first ceiling.
  local function any_lost(plan, at, known)
    local gone = false
    for i = 1, plan.globals do
      if not holds(KEYS[at + i], known + 4 * i - 3) then gone = true end
    end
    if not gone then return false end
    r = r + 1
    replies[r] = 'l'
    for i = 1, plan.globals do reply(KEYS[at + i]) end
    return true
  end

  return any_lost, reply, add
end
