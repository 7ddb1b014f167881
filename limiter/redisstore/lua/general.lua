-- general.lua: any check, with a state for each of its keys; and what only some plans need. All of it is made when the
-- first check of a call asks for it.

local IDEMPOTENCY_US, IDEMPOTENCY_TTL = 60000000, '120000'

local log = { load = load_log, fits = fits_log, left = left_log, reset = reset_log, write = write_log, refund = refund_log, note = note_log }
local window, level, held -- made when a plan first asks for them

-- kind_of is the kind of a key.
local function kind_of(k)
  if k.kind == 'l' then return log end
  if k.kind == 'c' then return held.none end
  if k.kind == 'p' then
    calendar = calendar or periods()
    return calendar
  end
  if not window then window, level = window_gcra() end
  return k.kind == 'w' and window or level
end

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

-- read_bounds reads the bounds of the bounded limits of a plan from ARGV[p] on.
local function read_bounds(plan, bounded, p)
  plan.bounds = bounded
  for _, l in ipairs(bounded) do
    local epoch, to, by_period = in_force(ARGV[p + 1]), tonumber(ARGV[p + 5]), l.k.kind == 'p'
    local burnt, since = not by_period and TIME < tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
    local kind, above = burnt and '!' or ' ', burnt and '"' or '!'
    since = burnt and since > 0 and (here or EPOCH == '') and since -- TIME of another primary is another
    local time = max(TIME, tonumber(ARGV[p + 4]), since or 0)
    if to > 0 then time = min(time, to) end
    if time ~= TIME then epoch, plan.time = '0000000000', time end
    plan.unknown = plan.unknown or tonumber(epoch) == 0
    l.bound = {
      C = 0, share = tonumber(ARGV[p]), epoch = epoch, kind = kind, after = epoch .. kind .. NOW .. '~', before = epoch .. above,
      burnt = burnt, since = since, through = by_period and tonumber(ARGV[p + 2]), lost = tonumber(ARGV[p + 3]),
      keep = tonumber(ARGV[p + 6]), D = tonumber(ARGV[p + 7]), W = l.W, counted = tonumber(ARGV[p + 8]), T = tonumber(ARGV[p + 9]),
    }
    l.bound.lingers, l.bound.period = l.W + l.bound.T, 0
    l.W, l.since = l.bound.counted, since
    l.edge = max(TIME - l.W, since and since - 1 or 0)
    p = p + 10
  end
  for i = 1, #plan do plan[i].time, plan[i].place = plan.time, i end
  return p
end

-- replayed replies to a check whose record there is, and returns whether there is one.
local function replayed(record, print)
  local v = call('GET', record)
  if not v then return false end
  local stamp, was, reply = match(v, '^(%d+) (%S+) ([^\n]*)$')
  if not stamp then error('GARBAGE in ' .. record, 0) end
  if tonumber(stamp) + IDEMPOTENCY_US <= TIME then return false end -- as good as expired
  if was ~= match(print, '^%S+') then
    r = r + 1
    replies[r] = 'x'
  else
    replies[r + 1], replies[r + 2] = 'm', stamp .. ' ' .. reply
    r = r + 2
  end
  return true
end

-- remember keeps an admission, of which the reply behind place from tells.
local function remember(record, print, from)
  local fingerprint, limits = match(print, '^(%S+)(.*)$')
  local text = NOW .. ' ' .. fingerprint
  for i = from + 1, r do text = text .. ' ' .. int(replies[i]) end
  call('SET', record, text .. limits, 'PX', IDEMPOTENCY_TTL)
end

local bounded, longest -- made when a plan first has bounds

-- lower brings the ceilings of bounded limits down to what their bounds leave. first is the place before the keys of the plan.
local function lower(plan, first, ceilings)
  if not bounded then bounded, longest = loans() end
  local at = first + #plan + #plan.globals
  for i, l in ipairs(plan.bounds) do
    local b, n = l.bound, l.n
    if b.through then counting_in(b, counting(KEYS[first + l.k.place], l.k)) end
    b.C = bounded(KEYS[at + i], b)
    if b.C < ceilings[n] then ceilings[n] = b.C end
  end
end

-- cover shortens a reservation to what bounds allow, and notes their epoch. at is the place before their loans.
local function cover(bounds, at, hold)
  local ttl = MAX
  for i = 1, #bounds do
    local b = bounds[i].bound
    if b.T > 0 then ttl, hold.epoch = min(ttl, longest(KEYS[at + i], b)), b.epoch end
    if b.T > 0 and b.through then hold.made = TIME end
  end
  if ttl < MAX then hold.ttl, hold.last = min(hold.ttl, ttl), TIME + ttl end
end

-- covered is whether what bounded limits of a plan are charged by a settle was held under their bounds: by this epoch, since
-- after a step of the clock nobody knows for how long, and in no period before the one in which it was made, where there may have
-- been no room.
local function covered(plan, record)
  for i = 1, #plan do
    local h = plan[i].set
    for j = 1, h and #plan[i] or 0 do
      local b = plan[i][j].bound
      if b and not (h.drop and record.epoch == b.epoch and (b.period == 0 or record.made < b.ends)) then return false end
    end
  end
  return true
end

-- lend carries out the operations of a check, and replies to it.
local function lend(plan, first, p, last)
  if plan.holding then held = held or holds() end
  local units, ends, t, now = 0, 0, plan.bounds[1].bound, nil
  if t.through then
    now = counting(KEYS[first + 1], plan[1])
    counting_in(t, now)
  end
  if plan.holding then units, ends = held.units(KEYS[first + 4]) end
  local reply = loan_ops(loans())(KEYS[first + 1], KEYS[first + 3], units, ends, t, now, p, last)
  replies[r + 1], replies[r + 2] = 'o', reply
  r = r + 2
end

local function extend(hold, plan, first)
  held = held or holds()
  held.extend(hold, plan, first)
end

-- elsewhen replies to a check of which a ceiling is for another period than counts, and returns whether one is. Nothing was written.
-- The counters were read. named is the place of the first period that a ceiling is for.
local function elsewhen(plan, first, named)
  local other = false
  for i = 1, #plan do
    local now = plan[i][1].bucket and counting(KEYS[first + i], plan[i])
    if now then
      other = other or ARGV[named] ~= '0' and tonumber(ARGV[named]) ~= now.number
      named = named + 1
    end
  end
  if not other then return false end
  r = r + 1
  replies[r] = 'w'
  local at = first + #plan
  for i = 1, #plan do
    for j = 1, #plan[i] do
      if plan[i][j].bucket then
        at = at + 1
        reply_counter(KEYS[at], plan[i][j], counting(KEYS[first + i], plan[i]))
      end
    end
  end
  return true
end

-- refund takes units back from all keys of a check, which then is as a look at what they leave.
local function refund(plan, first, c, sums)
  local writes = {}
  for i = 1, #plan do -- of equal keys the last has the sum of all
    local key = KEYS[first + i]
    writes[key] = kind_of(plan[i]).refund(states[key], plan[i], c or sums[i])
  end
  for i = 1, #plan do
    local key = KEYS[first + i]
    if writes[key] then
      writes[key]()
      writes[key], states[key] = nil, kind_of(plan[i]).load(key, plan[i])
    end
  end
end

-- decide reads and validates every key before the first write, so that what fails changes nothing.
-- Without a cost c, costs is the place before those of its keys in ARGV. ceilings are those of all its limits where one is
-- global. hold is the reservation of a reserve or a settle.
local function decide(plan, first, op, c, costs, ceilings, record, print, hold)
  local waits, lefts, overs, n, fits = {}, {}, {}, 0, true
  local sums, latest = costs and {}, costs and {} -- by place the cost under a key and equal ones before it, and that by key
  local takes, charges, sets, uncut, settled, crowded
  if plan.holding or hold then
    held, sets, uncut = held or holds(), {}, ceilings
    if op == 'h' and held.taken(hold) then
      r = r + 1
      replies[r] = 't'
      return
    end
    settled = op == 's' and held.settle(sets, hold)
    if op == 's' and not settled then return end
    if hold then takes, charges = held.shares(plan, op, c) end
    ceilings = held.read_sets(plan, first, ceilings, sets)
    if settled and not covered(plan, settled) then settled.released = 0 end
  end
  for i = 1, #plan do
    local k, key = plan[i], KEYS[first + i]
    if costs then
      sums[i] = tonumber(ARGV[costs + i]) + (latest[key] or 0)
      latest[key] = sums[i]
    end
    local s, kind = states[key], kind_of(k)
    if not s or s.k ~= k then -- a reload may meet the plan before it in one call
      s = kind.load(key, k)
      states[key] = s
    end
    for j = 1, #k do
      n = n + 1
      local take = takes and takes[i] or c or sums[i]
      -- A settle is not asked: a log has forgotten what is beyond its units, where a cost of 0 might look.
      local w = (op == 's' or op == 'f') and 0 or kind.fits(s, k[j], ceilings and ceilings[n] or k[j].C, take)
      if w ~= 0 and k.holds then
        local C = uncut and uncut[n] or k[j].C
        w = take > C and -1 or held.fits_later(kind, s, k[j], C, take, k.set, key)
      end
      waits[n] = w
      if w ~= 0 then
        fits = false
        if w < 1 and w ~= -1 then error('GARBAGE in ' .. key, 0) end -- its stamps are out of order
      end
    end
  end
  for i = 1, op == 'h' and #plan or 0 do
    if plan[i].holds and takes[i] > 0 and held.open(plan[i].set) >= held.most then crowded, fits = true, false end
  end
  if op == 'f' then refund(plan, first, c, sums) end
  local past = op == 'r' or op == 's' -- the limits, if need be
  local writes = past or op == 'c' or op == 'h' and c > 0
  local charged = past or writes and fits
  n = 0
  for i = 1, #plan do
    local k, s, c = plan[i], states[KEYS[first + i]], takes and takes[i] or c or latest[KEYS[first + i]]
    local kind = kind_of(k)
    for j = 1, #k do
      n = n + 1
      local C = ceilings and ceilings[n] or k[j].C
      local left = kind.left(s, k[j], C, c, waits[n])
      if not charged and left < 0 then
        overs[n] = max(0, min(C - left, k[j].L) - C)
      elseif past and k[j].bound then
        overs[n] = min(c, max(0, c - left))
      end
      lefts[n] = charged and max(0, left - c) or left
    end
  end
  local counter = first + #plan
  n = 0
  for i = 1, #plan do -- the first write: no key of the plan is read any more
    local k, s, c = plan[i], states[KEYS[first + i]], charges and charges[i] or c or tonumber(ARGV[costs + i])
    local kind = kind_of(k)
    if not charged then
      if s.stepped and writes and not plan.unknown then kind.note(s, k) end
    elseif c > 0 then
      kind.write(s, k, c)
    end
    for j = 1, charged and plan.globals and #k or 0 do
      if k[j].bucket then
        counter = counter + 1
        if c > 0 then add_counter(KEYS[counter], k[j], c, counting(KEYS[first + i], k)) end
      end
    end
  end
  if charged and op == 'h' and plan.bounds then cover(plan.bounds, first + #plan + #plan.globals, hold) end
  if charged and op == 'h' then held.make(plan, takes, hold, c) elseif writes and sets then held.save_all(sets, plan.unknown) end
  if settled then held.settled(hold, settled, c) end
  if writes and sets and not plan.unknown then held.each_global(plan, first, held.note) end
  r = r + 1
  replies[r] = settled and 's' or (charged or fits) and 'a' or 'd'
  local outcome = r
  counter = first + #plan
  for i = 1, #plan do
    local k, s = plan[i], states[KEYS[first + i]]
    local kind = kind_of(k)
    for j = 1, #k do
      n = n + 1
      local w, reset = charged and 0 or waits[n], kind.reset(s, k[j])
      if k.holds then
        reset = max(reset, held.reset(k.set))
        if crowded and w >= 0 and takes[i] > 0 and held.open(k.set) >= held.most then w = max(w, held.first_end(k.set), 1) end
      end
      replies[r + 1], replies[r + 2], replies[r + 3] = max(0, lefts[n]), w, reset
      r = r + 3
      if k[j].bucket then
        counter, r = counter + 1, r + 1
        replies[r] = overs[n] or 0
        reply_counter(KEYS[counter], k[j], counting(KEYS[first + i], k))
        if k[j].bound then
          r = r + 1
          replies[r] = k[j].bound.C
        end
      end
      if k.holds then
        r = r + 1
        replies[r] = k.set.held
      end
    end
  end
  if op == 'h' then
    replies[r + 1], replies[r + 2] = charged and hold.id or 0, charged and TIME + hold.ttl or crowded and 1 or 0
    r = r + 2
  elseif settled then
    replies[r + 1], replies[r + 2], replies[r + 3], replies[r + 4] = settled.amount, c, settled.released, settled.expires
    r = r + 4
  end
  if charged and record then remember(record, print, outcome) end
  if sets then held.each_global(plan, first, held.reply_gauge) end -- a record has none: it would be old
end

return decide, lend, lower, read_bounds, replayed, extend, elsewhen
