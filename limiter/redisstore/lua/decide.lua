-- decide.lua: decides checks one after the other, all limits of a check together. Joined behind now.lua,
-- base.lua, usage_counters.lua, log.lua, window_gcra.lua and loans.lua.
--
-- KEYS  the keys of all checks, in order; with an idempotency fingerprint the check's record comes
--       first, then one key for each key of its plan, then the counter of each of its global limits,
--       then the loans of each of its bounded limits, if the plan has bounds.
-- ARGV  nonce, number of plans, the plans, then the checks.
--   plan: number of keys, then for each key
--     kind 'l' log | 'w' window | 'g' level, trim (largest L of the key's limits), ttl (ms; a level
--       lives longer by its drain), number of limits, then for each limit: W (µs), C (its ceiling), L. The C of a global limit is '-': it is
--       given with each check, and two more follow: the length of its buckets (µs), and how many are
--       kept beside the newest. That of a bounded one is '=': besides, behind all keys follow for each of them in
--       order share, epoch (10 digits), TIME from which on it is open (µs), keep and D of loans (µs); or '' alone for
--       a plan without bounds.
--   check: plan (from 1), op 'c' check | 'p' peek | 'r' report | 'l' loans, cost, fingerprint ('' = none), then for
--       each '-' and '=' of its plan, in order, the ceiling, and generation, bucket and units of the counter that it
--       rests on (0 0 0 for none); for 'l' then how many arguments follow: operations, see loans.lua, on the loans of
--       the only limit.
-- Reply  one string: the line 'nonce TIME', then for each check a line:
--   'a …' admitted, 'd …' denied, 'm …' an earlier admission replayed, followed for each limit by
--         remaining, wait (µs until the cost fits, 0 now, -1 not under this ceiling), reset (µs), and for a
--         global one by how much the ceiling is exceeded, and generation, bucket and units of its counter (0 0 0
--         when there is none), and for a bounded one what it may hold under its bound
--   'l …' a counter does not hold what its ceiling rests on; followed for each global limit by generation, bucket
--         and units. Nothing was charged
--   'o …' what became of operations on loans, see loans.lua
--   'x'   the idempotency key came with another fingerprint before
--   'e …' why this check could not be decided; nothing of it was written

local IDEMPOTENCY_US, IDEMPOTENCY_TTL = 60000000, '120000'

local log = { load = load_log, fits = fits_log, left = left_log, reset = reset_log, write = write_log, note = note_log }
local window, level -- made when a plan first asks for them

local here -- the epoch of the data in this server, once it was read

-- in_force is an epoch while it is that of the region's hash, and the unknown one otherwise. In a cluster only the
-- primary that has the hash can tell.
local function in_force(epoch)
  if here == nil then
    here = false
    if EPOCH ~= '' then
      local ok, v = pcall(call, 'HGET', EPOCH, 'epoch')
      if ok and type(v) ~= 'table' then here = format('%010.0f', tonumber(match(v or '0', '^%d+')) or 0) end
    end
  end
  return here and here ~= epoch and '0000000000' or epoch
end

local function read_plan(p)
  local plan, bounded, n = { logs = true }, nil, 0
  for i = 1, tonumber(ARGV[p]) do
    local kind = log
    if ARGV[p + 1] ~= 'l' then
      if not window then window, level = window_gcra() end
      kind, plan.logs = ARGV[p + 1] == 'w' and window or level, false
    end
    local k = { kind = kind, trim = tonumber(ARGV[p + 2]), ttl = ARGV[p + 3], longest = 0 }
    p = p + 4
    for j = 1, tonumber(ARGV[p]) do
      local C = tonumber(ARGV[p + 2])
      k[j] = { j = j, W = tonumber(ARGV[p + 1]), w = ARGV[p + 1], C = C, L = tonumber(ARGV[p + 3]), last = C and '-' .. ARGV[p + 2] }
      if k[j].W > k.longest then k.longest = k[j].W end
      n = n + 1
      if ARGV[p + 2] == '=' then
        bounded = bounded or {}
        bounded[#bounded + 1], k[j].n = k[j], n
      end
      p = p + 3
      if not C then
        k[j].B, k[j].most = tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
        plan.globals = (plan.globals or 0) + 1
        p = p + 2
      end
    end
    plan[i] = k
  end
  p = p + 1
  if bounded then
    if ARGV[p] == '' then return plan, p + 1 end
    plan.bounds = bounded
    for _, l in ipairs(bounded) do
      local epoch = in_force(ARGV[p + 1])
      local closed = TIME < tonumber(ARGV[p + 2]) or tonumber(epoch) == 0
      l.bound = {
        C = 0, share = tonumber(ARGV[p]), epoch = epoch, after = epoch .. ' ' .. NOW .. '~', before = epoch .. '!', closed = closed,
        keep = tonumber(ARGV[p + 3]), D = tonumber(ARGV[p + 4]), W = l.W,
      }
      p = p + 5
    end
  end
  return plan, p
end

local function replay(record, print)
  local v = call('GET', record)
  if not v then return nil end
  local stamp, was, reply = match(v, '^(%d+) (%S+) ([^\n]*)$')
  if not stamp then error('GARBAGE in ' .. record, 0) end
  if tonumber(stamp) + IDEMPOTENCY_US <= TIME then return nil end -- as good as expired
  if was ~= print then return 'x' end
  return 'm ' .. reply
end

-- Partitions that several checks of one call share are read once: TIME does not move in between, so what
-- was found stays true, and each charge is added to it.
local states = {}

local bounded -- made when a plan first has bounds

-- lower brings the ceilings of bounded limits down to what their bounds leave. at is the place before their loans.
local function lower(bounds, at, ceilings)
  bounded = bounded or loans()
  for i = 1, #bounds do
    local l = bounds[i]
    local b, n = l.bound, l.n
    b.C = bounded(KEYS[at + i], b)
    if b.C < ceilings[n] then ceilings[n] = b.C end
  end
end

-- lend carries out the operations of a check.
local function lend(plan, first, p, last)
  return loan_ops(loans())(KEYS[first + 1], KEYS[first + 3], plan.bounds[1].bound, p, last)
end

-- decide reads and validates every key before the first write, so that what fails changes nothing.
-- ceilings are those of all its limits where one is global, and known is where what they rest on is in ARGV.
local function decide(plan, first, op, c, ceilings, known, record, print)
  local earlier = record and replay(record, print)
  if earlier then return earlier end
  local lost = false
  for i = 1, plan.globals or 0 do
    if not holds(KEYS[first + #plan + i], known + 4 * i - 3) then lost = true end
  end
  if lost then
    local reply = 'l'
    for i = 1, plan.globals do reply = reply .. ' ' .. counted(KEYS[first + #plan + i]) end
    return reply
  end
  if plan.bounds then lower(plan.bounds, first + #plan + plan.globals, ceilings) end
  if c == 1 and op == 'c' and plan.logs and not record then
    local fresh = true
    for i = 1, #plan do
      local key = KEYS[first + i]
      if states[key] == nil then states[key] = false else fresh = false end -- a second check of it is worth a state
    end
    local reply = fresh and quick(first, plan, ceilings)
    if reply then return reply end
  end
  local waits, lefts, overs, n, fits = {}, {}, {}, 0, true
  for i = 1, #plan do
    local k, key = plan[i], KEYS[first + i]
    local s = states[key]
    if not s or s.k ~= k then -- a reload may meet the plan before it in one call
      s = k.kind.load(key, k)
      states[key] = s
    end
    for j = 1, #k do
      n = n + 1
      local w = k.kind.fits(s, k[j], ceilings and ceilings[n] or k[j].C, c)
      waits[n] = w
      if w ~= 0 then
        fits = false
        if w < 1 and w ~= -1 then error('GARBAGE in ' .. key, 0) end -- its stamps are out of order
      end
    end
  end
  local charged = op == 'r' or op == 'c' and fits
  n = 0
  for i = 1, #plan do
    local k, s = plan[i], states[KEYS[first + i]]
    for j = 1, #k do
      n = n + 1
      local C = ceilings and ceilings[n] or k[j].C
      local left = k.kind.left(s, k[j], C, c, waits[n])
      if not charged and left < 0 then
        overs[n] = max(0, min(C - left, k[j].L) - C)
      elseif op == 'r' and k[j].bound then
        overs[n] = min(c, max(0, c - left))
      end
      lefts[n] = charged and max(0, left - c) or left
    end
  end
  local reply = (charged or fits) and 'a' or 'd'
  local counter = first + #plan
  n = 0
  for i = 1, #plan do -- the first write: nothing is read any more
    local k, s = plan[i], states[KEYS[first + i]]
    if charged then k.kind.write(s, k, c) elseif s.stepped and op == 'c' then k.kind.note(s, k) end
    for j = 1, #k do
      n = n + 1
      reply = format('%s %.0f %.0f %.0f', reply, max(0, lefts[n]), charged and 0 or waits[n], k.kind.reset(s, k[j]))
      if k[j].B then
        counter = counter + 1
        local held = charged and add_counter(KEYS[counter], k[j], c, k.ttl) or counted(KEYS[counter])
        reply = format('%s %.0f %s', reply, overs[n] or 0, held)
        if k[j].bound then reply = reply .. ' ' .. k[j].bound.C end
      end
    end
  end
  if charged and record then
    call('SET', record, NOW .. ' ' .. print .. ' ' .. reply:sub(3), 'PX', IDEMPOTENCY_TTL)
  end
  return reply
end

local plans, p = {}, 3
for i = 1, tonumber(ARGV[2]) do plans[i], p = read_plan(p) end
local replies, first = { ARGV[1] .. ' ' .. NOW }, 0
while p <= #ARGV do
  local plan, print = plans[tonumber(ARGV[p])], ARGV[p + 3]
  local op, c, record, ceilings = ARGV[p + 1], tonumber(ARGV[p + 2]), nil, nil
  p = p + 4
  local known = p
  if print ~= '' then
    first = first + 1
    record = KEYS[first]
  end
  if plan.globals then
    ceilings = {}
    for _, k in ipairs(plan) do
      for _, l in ipairs(k) do
        ceilings[#ceilings + 1] = l.C or tonumber(ARGV[p])
        if not l.C then p = p + 4 end
      end
    end
  end
  local ok, reply
  if op == 'l' then
    local last = p + 1 + tonumber(ARGV[p])
    ok, reply = pcall(lend, plan, first, p + 1, last)
    p = last
  else
    ok, reply = pcall(decide, plan, first, op, c, ceilings, known, record, print)
  end
  if not ok then
    for i = 1, #plan do states[KEYS[first + i]] = nil end
    for i = 1, plan.globals or 0 do counters[KEYS[first + #plan + i]] = nil end
    reply = ('e ' .. (type(reply) == 'table' and reply.err or reply)):gsub('\n', ' ')
  end
  first = first + #plan + (plan.globals or 0) + (plan.bounds and #plan.bounds or 0)
  replies[#replies + 1] = reply
end
return table.concat(replies, '\n')
