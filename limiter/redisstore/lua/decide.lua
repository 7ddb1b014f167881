-- decide.lua: decides checks one after the other, all limits of a check together. Joined behind now.lua,
-- base.lua, usage_counters.lua, quick.lua, and function general, which has all the other files in it.
--
-- KEYS  the keys of all checks, in order; the record of a reservation comes first, then with an idempotency fingerprint the
--       check's record, then one key for each key of its plan, then the counter of each of its global limits,
--       then the loans of each of its bounded limits, if the plan has bounds, then the holds under each key that takes some.
-- ARGV  nonce, number of plans, the plans, then the checks.
--   plan: number of keys, then for each key
--     kind 'l' log | 'w' window | 'g' level | 'p' periods, in capitals where reservations hold units under it, or 'C' nothing but holds, mark (what a log's header says of this plan, see log.lua), ttl (ms; a level
--       lives longer by its drain, periods by what is left of the newest), the longest W (µs; that of a bounded limit as long as it may get), number of
--       limits, then for each limit: W (µs), C (its ceiling), L. The C of a global
--       limit is '-': it is given with each check. That of a bounded one is '=': besides, behind all keys and periods follow for each of them in
--       order share, epoch (10 digits), TIME until which the share is burnt (of periods the number of the last that is; 0 for none) and when the epoch began, its fence (the first and
--       the last TIME at which its epoch counts as known; the last may be 0), keep and D of loans, the window by this
--       clock, and max_ttl of reservations that hold units under it (µs; 0 for none); or '' alone for a plan without bounds.
--       Behind all keys follow for each with periods number and beginning (µs) of four periods: that before about now, that of
--       now and two more.
--   check: plan (from 1) of a check at cost 1 without a fingerprint; then for each '-' and '=' of its plan, in order,
--       the ceiling, and generation, bucket and units of the counter that it rests on (0 0 0 for none); then for each '-' and '='
--       with periods the number of the one that the ceiling is for (0 for any).
--       Of any other: -plan, op 'c' check | 'p' peek | 'r' report | 'f' refund | 'l' loans, cost, fingerprint ('' = none; behind it what
--       the record says of its limits, see record.go), where cost is
--       '' the cost under each key, of which some may be equal; of 'h' reserve | 's' settle | 'e' extend, whose cost is its amount,
--       then the name of its id, as in the names of its record and holds, id, ttl, for how long the record is kept, and TIME from which on one that is missing counts as forgotten (µs; 0
--       where the op needs none); then the same as above; for 'l' then how many arguments follow:
--       operations, see loans.lua, on the loans of the only limit.
-- Reply  'nonce TIME', then for each check either an admission by quick.lua: for each limit what remains, and for a global one
--   generation, bucket and units of its counter, of one with periods when that ends, and for a bounded one what it may hold under its
--   bound.
--   Or an outcome and what belongs to it:
--   'a' admitted, 'd' denied: for each limit what remains, wait (µs until the cost fits, 0 now, -1 not under this ceiling),
--         reset (µs), and for a global one by how much the ceiling is exceeded, then generation, bucket and units of its
--         counter (0, 0, 0 when there is none), with periods those of the one that counts and when that ends, and for a bounded one what it may hold under its bound; for one of a key that
--         takes holds how many units are held. Of a reserve besides: id and TIME when its holds end, or 0 and 1 if there are too
--         many holds. Last of all come sequence, units and TIME of the gauge (usage_counters.lua) of each global limit whose key
--         takes holds
--   's' settled: the same numbers of limits, then amount, units charged, 1 if its holds were open, and when they end or would have; then the gauges;
--   'n' settled before: the last four alone
--   'k' extended: amount and TIME when the holds end; then of each global limit whose key takes holds its counter and gauge
--   'g' settled too late, or to be extended and not open; 't' another reservation has the id: nothing was charged
--   'l'   a counter does not hold what its ceiling rests on: for each global limit generation, bucket and units, and with periods
--         when that ends. Nothing was charged
--   'w'   the same where a ceiling is for another period than counts
--   'm'   an earlier admission replayed: one text, its TIME, its numbers and what its record says of its limits
--   'o'   one text: what became of operations on loans, see loans.lua
--   'x'   the idempotency key came with another fingerprint before
--   'e'   one text: why this check could not be decided; nothing of it was written. AGAIN: it needs the periods about the reply's TIME

local decide, lend, lower, read_bounds, replayed, extend, elsewhen -- of general, once it was called

local function uncommon()
  if not decide then decide, lend, lower, read_bounds, replayed, extend, elsewhen = general() end
end

-- read_plan reads the plan at ARGV[p], and returns it and where the next begins.
local function read_plan(p)
  local plan, bounded, n, keys = { logs = true, globals = false, bounds = false, width = 0 }, nil, 0, tonumber(ARGV[p])
  plan.width = keys
  for i = 1, keys do
    local k = { kind = ARGV[p + 1], mark = ARGV[p + 2], ttl = ARGV[p + 3], longest = tonumber(ARGV[p + 4]) }
    if k.kind ~= 'l' then
      plan.logs = false
      if k.kind < 'a' then
        k.kind, k.holds = string.lower(k.kind), true
        plan.holding, plan.width = (plan.holding or 0) + 1, plan.width + 1
      end
    end
    k.edge, k.turn = TIME - k.longest, TIME - TIME % k.longest
    p = p + 5
    for j = 1, tonumber(ARGV[p]) do
      local w, C = ARGV[p + 1], tonumber(ARGV[p + 2])
      local W = tonumber(w)
      local l = { j = j, W = W, edge = TIME - W, C = C, L = tonumber(ARGV[p + 3]), last = C and '-' .. ARGV[p + 2], bucket = false }
      k[j], n = l, n + 1
      if ARGV[p + 2] == '=' then
        bounded = bounded or {}
        bounded[#bounded + 1], l.n = l, n
      end
      p = p + 3
      if not C then
        l.bucket = '' .. floor(TIME / W)
        plan.globals, l.k = plan.globals or {}, k
        plan.globals[#plan.globals + 1], plan.width = l, plan.width + 1
        if k.kind == 'p' then plan.periods = (plan.periods or 0) + 1 end
      end
    end
    plan[i] = k
  end
  p = p + 1
  for i = 1, #plan do
    if plan[i].kind == 'p' then
      local near = {}
      for n = 1, 4 do near[n], p = { number = tonumber(ARGV[p]), begins = tonumber(ARGV[p + 1]) }, p + 2 end
      plan[i].near = near
    end
  end
  if plan.globals and not lost then
    lost, count, reply_counter, add_counter, load_counter = usage_counters()
  end
  if bounded and ARGV[p] == '' then return plan, p + 1 end
  if bounded then
    uncommon()
    plan.width = plan.width + #bounded
    return plan, read_bounds(plan, bounded, p)
  end
  return plan, p
end

local common, plans, p = {}, {}, 3
for i = 1, tonumber(ARGV[2]) do
  local plan
  plan, p = read_plan(p)
  common['' .. i], plans['-' .. i] = plan, plan
end

local first, last, ceilings = 0, #ARGV, {}
local again = false -- a check has met a TIME for which the caller has no periods: it is sent again, and all after it
local at, of, from -- the check under way: the place before its keys, its plan, the place before its reply

-- run decides the checks from ARGV[p] on.
local function run()
  while p <= last do
    local plan, op, c, record, print, costs, hold = common[ARGV[p]], 'c', 1, nil, '', nil, nil
    if plan then
      p = p + 1
    else
      plan, op, c, print = plans[ARGV[p]], ARGV[p + 1], tonumber(ARGV[p + 2]), ARGV[p + 3]
      p = p + 4
      if not c then costs, p = p - 1, p + #plan end
      if op == 'h' or op == 's' or op == 'e' then
        first = first + 1
        hold = {
          key = KEYS[first], tenant = #KEYS[first] - #ARGV[p] - 2, name = ARGV[p], id = ARGV[p + 1],
          ttl = tonumber(ARGV[p + 2]), keep = tonumber(ARGV[p + 3]), gone = tonumber(ARGV[p + 4]),
        }
        p = p + 5
      end
    end
    if print ~= '' then
      first = first + 1
      record = KEYS[first]
    end
    local known = p
    if plan.globals then
      local n = 0
      for i = 1, #plan do
        local k = plan[i]
        for j = 1, #k do
          n = n + 1
          ceilings[n] = k[j].C
          if k[j].bucket then
            ceilings[n] = tonumber(ARGV[p])
            p = p + 4
          end
        end
      end
    end
    local named = plan.periods and p
    p = p + (plan.periods or 0)
    at, of, from, first = first, plan, r, first + plan.width
    if record or hold or op == 'l' then uncommon() end
    if op == 'l' then
      local operations = p + 1
      p = operations + tonumber(ARGV[p])
      lend(plan, at, operations, p)
    elseif again then
      error('AGAIN', 0)
    elseif op == 'e' then
      extend(hold, plan, at)
    elseif not (record and replayed(record, print)) then
      if plan.bounds then lower(plan, at, ceilings) end
      local common = c == 1 and op == 'c' and plan.logs and not record and fresh(plan, at)
      if not (common and quick(at, plan, ceilings, known)) and not (plan.globals and lost(plan, at + #plan, known)) then
        uncommon()
        if not (named and elsewhen(plan, at, named)) then decide(plan, at, op, c, costs, plan.globals and ceilings, record, print, hold) end
      end
    end
  end
end

-- What cannot be decided fails alone.
repeat
  local ok, why = pcall(run)
  if not ok then
    again = again or why == 'AGAIN'
    for i = 1, #of do states[KEYS[at + i]] = nil end
    for i = 1, of.globals and #of.globals or 0 do counters[KEYS[at + #of + i]] = nil end
    replies[from + 1], replies[from + 2] = 'e', (type(why) == 'table' and why.err or why):gsub('\n', ' ')
    r = from + 2
    for i = r + 1, #replies do replies[i] = nil end
  end
until ok
return replies
