-- holds.lua: the open holds of reservations under a key, made when a plan first takes holds.
--
-- A sorted set, or nothing while nobody holds anything:
--   'sum count newest offset last final lives'  score 0: units and number of all holds, when the set was changed last, the offset
--                                        of its clock, when the last hold ends, when it does at the latest, however often it is
--                                        extended, under a bound, and how long the key lives at least
--   'name:units'                    score: when the hold ends, µs
-- All times are by the set's own clock, see tick.
--
-- The record of a reservation is a string:
--   'o ends expires amount last epoch units name …'  open: TIME when it is forgotten, TIME when its holds end, the amount, under
--                                                    a bound the last TIME at which they may end and the epoch, else 0 0, and
--                                                    of each of its sets how much it holds there, and the name below the tenant;
--                                                    under a bound by the calendar ' made' follows, the TIME when it was made
--   's ends expires amount charged released'         settled

local function holds()
  local POPPED, WAITED, MOST = 64, 64, 10000 -- mostPopped and mostWaited of memstore/holds.go, quota.MaxHolds
  local MARGIN = 60000000 -- store.HoldsMargin, µs

  -- load_set reads a set: held are the units of holds that are not over. Of those that are, a call leaves out and removes
  -- the first POPPED.
  local function load_set(key)
    local v = call('ZRANGE', key, '0', '1', 'WITHSCORES')
    local h = { key = key, there = v[1], sum = 0, count = 0, last = 0, final = 0, lives = 0, over = 0, held = 0, kept = 0, ends = false, drop = false }
    if not v[1] then
      tick(h, 0, 0, 0)
      return h
    end
    local sum, count, newest, kept, last, final, lives = match(v[1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    if not sum or not v[4] then error('GARBAGE in ' .. key, 0) end
    h.sum, h.count, h.last, h.lives = whole(sum, key), whole(count, key), whole(last, key), whole(lives, key)
    h.kept, h.final = whole(kept, key), whole(final, key)
    tick(h, whole(newest, key), h.kept, h.last)
    h.held = h.sum
    if tonumber(v[4]) <= h.now then
      v = call('ZRANGE', key, '1', POPPED, 'WITHSCORES')
      for i = 2, #v, 2 do
        if tonumber(v[i]) > h.now then break end
        h.over, h.held = h.over + 1, h.held - tonumber(match(v[i - 1], ':(%d+)$'))
      end
    end
    return h
  end

  -- set is the set under a key in the sets of a check.
  local function set(sets, key)
    local h = sets[key]
    if not h then
      h = load_set(key)
      sets[key] = h
      sets[#sets + 1] = h
    end
    return h
  end

  -- open is how many holds are not over.
  local function open(h) return h.count - h.over end

  -- until_end is how long until a time of a set's clock.
  local function until_end(h, ends) return ends <= h.now and 0 or wait(h, ends) end

  local function reset_set(h) return open(h) > 0 and until_end(h, h.last) or 0 end

  -- first_end is how long until the first hold ends that is not over.
  local function first_end(h)
    return until_end(h, tonumber(call('ZRANGE', h.key, h.over + 1, h.over + 1, 'WITHSCORES')[2]))
  end

  -- wait_held is how long until a cost fits that does not now, while units age and holds end. fits(held) is how long if
  -- that much is held, -1 for never. Of m holds that end, ends[m] is when the last does, left[m] what is held then.
  local function wait_held(h, fits)
    if not h.ends then
      h.ends, h.left = { [0] = 0 }, { [0] = h.held }
      local v = call('ZRANGE', h.key, h.over + 1, h.over + WAITED, 'WITHSCORES')
      for i = 2, #v, 2 do
        h.ends[i / 2], h.left[i / 2] = until_end(h, tonumber(v[i])), h.left[i / 2 - 1] - tonumber(match(v[i - 1], ':(%d+)$'))
      end
    end
    local ends, lo, hi = h.ends, 0, #h.ends
    local function early(m)
      local w = fits(h.left[m])
      return w < 0 or w > ends[m]
    end
    if hi == 0 or early(hi) then
      return open(h) > hi and max(1, ends[hi]) or fits(h.left[hi])
    end
    while hi - lo > 1 do
      local mid = floor((lo + hi) / 2)
      if early(mid) then lo = mid else hi = mid end
    end
    local before = fits(h.left[lo])
    return max(1, before < 0 and ends[hi] or min(before, ends[hi]))
  end

  -- drop_hold has save_set remove a hold, and returns whether it is open.
  local function drop_hold(h, member, units)
    local ends = tonumber(call('ZSCORE', h.key, member) or 0)
    if ends <= h.now then return false end
    h.drop, h.units, h.dropped, h.held = member, units, ends, h.held - units
    return true
  end

  -- save_set writes what has changed in a set: what is over is removed, a hold dropped and one added that ends after ttl, and after
  -- most at the latest; without most that stays. stays: TIME may be that of a step that nobody else will see, so the clock stays
  -- where it is and nothing counts as over.
  local function save_set(h, stays, add, units, ttl, most)
    if not (h.drop or add or h.over > 0 and not stays or h.stepped and not stays) then return end
    local key, over = h.key, stays and 0 or h.over
    h.count, h.sum = h.count - over, stays and h.sum or h.held + (h.drop and h.units or 0)
    if h.drop then h.count, h.sum = h.count - 1, h.sum - h.units end
    if add then
      if h.count == 0 and not h.drop then h.final = 0 end
      if most then h.final = max(h.final, h.now + most) end
      h.count, h.sum, h.held = h.count + 1, h.sum + units, h.held + units
    elseif h.count == 0 then
      if h.there then call('UNLINK', key) end
      h.over, h.there = 0, false
      return
    end
    if h.there then call('ZREMRANGEBYRANK', key, '0', over) end
    if h.drop then call('ZREM', key, h.drop) end
    local ends = add and h.now + ttl
    if h.drop and h.dropped == h.last then
      h.last = h.count > (add and 1 or 0) and tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]) or 0
    end
    if ends then h.last = max(h.last, ends) end
    if (h.drop or add) and not stays then h.newest, h.kept = h.now, h.offset end
    if h.stepped and not stays then h.kept = h.offset end
    h.over = stays and h.over or 0
    local lives = h.count > 1 and h.lives or 0 -- of a set of which all was removed Redis has made another key
    if add and h.last + MARGIN > lives then h.lives = h.last + MARGIN + ttl end -- so that it need not be set each time
    h.there = format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', h.sum, h.count, h.newest, h.kept, h.last, h.final, h.lives)
    if add then
      call('ZADD', key, '0', h.there, int(ends), add)
      if h.lives > lives then call('PEXPIRE', key, int(ceil((h.lives - h.now) / 1000))) end
    else
      call('ZADD', key, '0', h.there)
    end
  end

  -- read_record reads the record of a reservation, nil for none.
  local function read_record(hold)
    local v = call('GET', hold.key)
    if not v then return nil end
    local kind, ends, expires, amount, rest = match(v, '^([os]) (%d+) (%d+) (%d+) ?(.*)$')
    if not kind then error('GARBAGE in ' .. hold.key, 0) end
    local record = { ends = whole(ends, hold.key), expires = expires, amount = amount, rest = rest, settled = kind == 's' }
    if record.settled then
      record.charged, record.released = match(rest, '^(%d+) ([01])$')
      if not record.charged then error('GARBAGE in ' .. hold.key, 0) end
    else
      record.last, record.epoch, record.rest = match(rest, '^(%d+) (%d+) ?(.*)$')
      if not record.last then error('GARBAGE in ' .. hold.key, 0) end
      record.made = tonumber(match(record.rest, ' %S+ (%d+)$') or 0)
    end
    return record
  end

  -- each_set calls visit for each set of a record: the set, the member that its hold has there, and units.
  local function each_set(record, sets, hold, visit)
    local tenant = sub(hold.key, 1, hold.tenant)
    for units, name in string.gmatch(record.rest, '(%d+) (%S+)') do
      visit(set(sets, tenant .. name), hold.name .. ':' .. units, tonumber(units))
    end
  end

  local function write_record(hold, ends, text)
    call('SET', hold.key, text, 'PX', int(ceil((ends - TIME) / 1000)))
  end

  local function write_open(hold, expires, amount, last, epoch, sets)
    local ends = expires + hold.keep
    write_record(hold, ends, format('o %.0f %.0f %s %s %s %s', ends, expires, amount, last, epoch, sets))
  end

  -- make writes the holds of a reservation under the keys of a plan, and its record.
  local function make(plan, takes, hold, amount)
    local sets, most = {}, hold.last and hold.last - TIME
    for i = 1, #plan do
      local h, units = plan[i].set, int(takes[i])
      if plan[i].holds then
        save_set(h, false, hold.name .. ':' .. units, takes[i], hold.ttl, most)
        sets[#sets + 1] = units .. ' ' .. sub(h.key, hold.tenant + 1)
      end
    end
    if hold.made then sets[#sets + 1] = int(hold.made) end
    write_open(hold, TIME + hold.ttl, int(amount), int(hold.last or 0), hold.epoch or '0', table.concat(sets, ' '))
  end

  local function save_all(sets, stays)
    for _, h in ipairs(sets) do save_set(h, stays) end
  end

  -- write_settled writes what came of a settle, which charged c units.
  local function write_settled(hold, record, c)
    write_record(hold, record.ends, format('s %.0f %s %s %.0f %d', record.ends, record.expires, record.amount, c, record.released))
  end

  -- settle replies to a settle that charges nothing, and returns nothing; or it returns the record with what is to be
  -- written of it. From then on its holds are not held any more.
  local function settle(sets, hold)
    local record = read_record(hold)
    if TIME >= (record and record.ends or hold.gone) then
      r = r + 1
      replies[r] = 'g'
      return nil
    elseif record and record.settled then
      replies[r + 1], replies[r + 2], replies[r + 3], replies[r + 4], replies[r + 5] = 'n', record.amount, record.charged, record.released, record.expires
      r = r + 5
      return nil
    end
    local ends = max(hold.gone, TIME + hold.keep) -- without this record another settle would charge until hold.gone
    if not record then return { ends = ends, expires = '0', amount = '0', rest = '', released = 0 } end
    record.ends, record.released = max(record.ends, ends), 1
    each_set(record, sets, hold, function(h, member, units)
      if not drop_hold(h, member, units) then record.released = 0 end
    end)
    return record
  end

  local no_gauge = { sequence = 0, units = 0, ends = 0 } -- the gauge of a counter without one

  -- write_gauge writes the gauge of a counter, which has to outlive what it says.
  function write_gauge(key, t)
    local g = t.gauge
    call('HSET', key, 'h', format('%.0f %.0f %.0f', g.sequence, g.units, g.ends))
    if g.ends > TIME then call('PEXPIRE', key, int(ceil((g.ends - TIME) / 1000) + MARGIN / 1000), 'GT') end
  end

  -- note_gauge notes that open holds have so many units of limit l until TIME ends, if its counter does not say so. The sequence
  -- stays with the key, whatever becomes of the holds, and is no less than TIME: a replica that takes over without the newest
  -- changes must not use their numbers again.
  local function note_gauge(key, l, units, ends, now)
    local t = load_counter(key)
    if t and t.earlier then return end -- a string, until the first charge
    local was = t and t.gauge or no_gauge
    if units == was.units and ends == was.ends then return end
    if not t and now then
      add_counter(key, l, 0, now)
      t = load_counter(key)
    elseif not t then
      t = { generation = NOW, bucket = l.bucket, units = 0 }
      counters[key] = t
      call('HSET', key, NOW .. ':' .. l.bucket, '0')
      call('PEXPIRE', key, longer(l.k))
    end
    t.gauge = { sequence = max(was.sequence + 1, TIME), units = units, ends = ends }
    write_gauge(key, t)
  end

  -- reply_gauge adds the gauge of a counter to the reply.
  local function reply_gauge(key)
    local g = counters[key] and counters[key].gauge or no_gauge
    replies[r + 1], replies[r + 2], replies[r + 3] = g.sequence, g.units, g.ends
    r = r + 3
  end

  -- each_global calls visit for each global limit of a plan whose key takes holds, which were read. first is the place before
  -- its keys.
  local function each_global(plan, first, visit)
    local at = first + #plan
    for i = 1, plan.globals and #plan or 0 do
      for j = 1, #plan[i] do
        if plan[i][j].bucket then
          at = at + 1
          if plan[i].holds then visit(KEYS[at], plan[i][j], plan[i].set, counting(KEYS[first + i], plan[i])) end
        end
      end
    end
  end

  -- note has peers know what is held of a limit.
  local function note(key, l, h, now)
    if open(h) > 0 and h.last > h.now then
      note_gauge(key, l, h.held, h.last - h.offset, now)
    else
      note_gauge(key, l, 0, 0, now)
    end
  end

  -- read_plan_sets reads the holds of all keys of a plan that take any.
  local function read_plan_sets(plan, first, sets)
    local at = first + plan.width - (plan.holding or 0)
    for i = 1, #plan do
      if plan[i].holds then
        at = at + 1
        plan[i].set = set(sets, KEYS[at])
      end
    end
  end

  -- extend replies to a call that has the holds of a reservation end later. The keys of its plan follow place first.
  local function extend(hold, plan, first)
    local record, sets, all = read_record(hold), {}, true
    if record and not record.settled and TIME < record.ends then
      if record.last ~= '0' then hold.ttl = max(0, min(hold.ttl, tonumber(record.last) - TIME)) end
      each_set(record, sets, hold, function(h, member, units)
        if not drop_hold(h, member, units) then all = false end
      end)
      for _, h in ipairs(sets) do
        if not all and h.drop then h.drop, h.held = false, h.held + h.units end
        save_set(h, false, h.drop, h.units, hold.ttl)
      end
    else
      all = false
    end
    r = r + 1
    replies[r] = 'g'
    if not all then return end
    write_open(hold, TIME + hold.ttl, record.amount, record.last, record.epoch, record.rest)
    replies[r], replies[r + 1], replies[r + 2] = 'k', record.amount, TIME + hold.ttl
    r = r + 2
    read_plan_sets(plan, first, sets)
    each_global(plan, first, function(key, l, h, now)
      note(key, l, h, now)
      reply_counter(key, l, now)
      reply_gauge(key)
    end)
  end

  local none = { -- a key that takes nothing but holds
    load = function(_, k) return { k = k } end,
    fits = function(_, _, C, c) return c > C and -1 or 0 end,
    left = function(_, _, C) return max(0, C) end,
    reset = function() return 0 end,
  }

  -- shares returns what a reserve or a settle takes under each key of a plan, and what of that it charges: store.Call.Share.
  local function shares(plan, op, c)
    local takes, charges = {}, {}
    for i = 1, #plan do
      local k = plan[i]
      local tokens = k.holds and k.kind ~= 'c'
      if op == 'h' then
        takes[i], charges[i] = tokens and max(1, c) or 1, k.holds and 0 or 1
      else
        takes[i] = tokens and c or 0
        charges[i] = takes[i]
      end
    end
    return takes, charges
  end

  -- read_sets reads the holds of all keys of a plan that take any, and returns the ceilings of all limits less what is held.
  local function read_sets(plan, first, ceilings, sets)
    local n, lowered = 0, {}
    read_plan_sets(plan, first, sets)
    for i = 1, #plan do
      local k = plan[i]
      for j = 1, #k do
        n = n + 1
        k[j].last = nil -- it is of C
        lowered[n] = (ceilings and ceilings[n] or k[j].C) - (k.holds and k.set.held or 0)
      end
    end
    return lowered
  end

  -- fits_later is how long until a cost fits under ceiling C that does not fit under what holds leave of it.
  local function fits_later(kind, s, l, C, c, h, key)
    return wait_held(h, function(units)
      local w = kind.fits(s, l, C - units, c)
      if w < -1 then error('GARBAGE in ' .. key, 0) end
      return w
    end)
  end

  -- units are those of the open holds of a set, and TIME when the last ends at the latest.
  local function units(key)
    local h = load_set(key)
    return h.held, h.held > 0 and TIME + max(0, h.final - h.now) or 0
  end

  return {
    none = none, shares = shares, read_sets = read_sets, fits_later = fits_later, open = open, reset = reset_set, first_end = first_end,
    units = units, save_all = save_all, make = make,
    taken = function(hold) return call('GET', hold.key) end, settle = settle, settled = write_settled, extend = extend,
    each_global = each_global, note = note, reply_gauge = reply_gauge, most = MOST,
  }
end
