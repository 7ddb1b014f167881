-- usage_counters.lua: the usage counters: what this region has admitted of a partition under one global limit.
--
--   'generation:bucket:units:earlier:…'   quota.Counter of the newest bucket, then the units of those before it
--
-- generation is the TIME at which the key was created. Buckets follow TIME itself, not the partition's clock,
-- because peers read them against this region's TIME.

local MAX_COUNTER = 4 * 1099511627776 -- quota.MaxCounter
local SAME_KEY = 1000 -- quota.maxRenewals
local counters = {} -- of this call, by key; false where there is no key

-- load_counter reads the counter of a key, and raises for one that we cannot have written.
local function load_counter(key)
  local t = counters[key]
  if t == nil then
    local v = call('GET', key)
    t = false
    if v then
      local generation, bucket, units, earlier = match(v, '^(%d+):(%d+):(%d+)([:%d]*)$')
      if not generation then error('GARBAGE in ' .. key, 0) end
      t = { generation = whole(generation, key), bucket = whole(bucket, key), units = whole(units, key), earlier = earlier }
      if t.units > MAX_COUNTER then error('GARBAGE in ' .. key, 0) end
    end
    counters[key] = t
  end
  return t
end

-- holds reads the counter of a key and reports whether the counter of a key has all that was known of it: ARGV[p] is its generation (0 for
-- nothing), then bucket and units. One that went back, in a failover to a replica that was behind, is dropped:
-- the next charge begins another generation, so what it had counts as lost everywhere. It is quota.Counter.Holds.
local function holds(key, p)
  local t = load_counter(key)
  if ARGV[p] == '0' then return true end
  local grown = t and t.generation - tonumber(ARGV[p])
  if not t or grown >= SAME_KEY or grown <= -SAME_KEY then return false end
  local ahead = grown ~= 0 and grown or t.bucket - tonumber(ARGV[p + 1])
  if ahead == 0 then ahead = t.units - tonumber(ARGV[p + 2]) end
  if ahead >= 0 then return true end
  call('UNLINK', key)
  counters[key] = false
  return false
end

-- pushed is the units of the buckets before the newest once it has moved on by some: at most as many as
-- count beside it.
local function pushed(t, moved, most)
  if moved > most then return '' end
  local earlier = string.rep(':0', moved - 1) .. ':' .. int(t.units) .. t.earlier
  local at = 0
  for _ = 1, most + 1 do
    at = earlier:find(':', at + 1, true)
    if not at then return earlier end
  end
  return earlier:sub(1, at - 1)
end

-- counted is what the reply says of a counter.
local function counted(key)
  local t = counters[key]
  return t and format('%.0f %.0f %.0f', t.generation, t.bucket, t.units) or '0 0 0'
end

-- add_counter charges c units to the counter of limit l, and returns what the reply says of it.
local function add_counter(key, l, c, ttl)
  local t, bucket = counters[key], floor(TIME / l.B)
  if not t then
    t = { generation = TIME, bucket = bucket, units = 0, earlier = '' }
    counters[key] = t
  elseif bucket > t.bucket then
    t.earlier, t.bucket, t.units = pushed(t, bucket - t.bucket, l.most), bucket, 0
  elseif bucket < t.bucket - 1 then -- TIME stepped back: its buckets are counted anew, see quota.SameKey
    t.generation, t.earlier, t.bucket, t.units = t.generation + 1, '', bucket, 0
  end -- a fall of less than a bucket is waited out in the newest
  t.units = min(t.units + c, MAX_COUNTER)
  local generation = int(t.generation)
  call('SET', key, generation .. ':' .. t.bucket .. ':' .. t.units .. t.earlier, 'PX', ttl)
  return generation .. ' ' .. t.bucket .. ' ' .. t.units
end
