-- loans.lua: the loans of a partition under one bounded limit, as loan.Book, made when a plan first asks for them.
--
-- A hash, or nothing while nobody lends or borrows:
--   'c'                    'epoch till delta', the first two of 10 and 16 digits: by how much loans and the recall change what may be
--                          admitted, until TIME is till. 'epoch!till delta' while the share is burnt
--                          Of a calendar's limit the number of the period that counted stands in place of till: there it holds
--   'r'                    'recall until', if there is one
--   'l<peer> epoch stamp'  'units back until max_ttl' of a loan to a peer, the last where there are reservations; h for one from it.
--                          Of a calendar's limit 'units back until max_ttl period', and of one to a peer also its Borrower and Base
--   't'                    how long the loans from peers that 'c' counts allow a reservation to last, µs, where there are reservations;
--                          where something is lent in a later period less than MAX, since a reservation ends with the period then too
--
-- The terms t of a bound: share, burnt, epoch (10 digits), kind (what stands behind it in 'c'), after and before (what 'c' is
-- between while it holds), since (TIME when the epoch began, false while all of the window counts), keep and D (µs),
-- the limit's W, counted, the window by this server's clock where that is fast, T (max_ttl of reservations, µs, 0 for none),
-- and lingers, W and T. Of a calendar's limit, after counting_in, period and ends are the number of the one that counts and its end,
-- through is the last period for which the share is burnt, lost is quota.Bound.LostIn, and past is loan.Terms.Past; else
-- period is 0.

local function loans()
  local sub = string.sub

  local LONGEST = 30000000 -- loan.longest

  local function by_slowest(us) return ceil(us * 102 / 98) end -- bySlowest of quota/loan

  -- full is whether there is no room for another loan of a kind: all are read and written at once.
  local MOST = 512 -- loan.MaxLoans
  local function full(of)
    local n = 0
    for _ in pairs(of) do n = n + 1 end
    return n >= MOST
  end

  -- left is what is left of loans, without those that are over or of another period, and those on which no reservation may last
  -- until then.
  local function left(of, t, ends)
    local n = 0
    for _, l in pairs(of) do
      if l.till > TIME and l.period == t.period and (not ends or t.period > 0 or l.till + l.T >= ends) then n = n + l.units - l.back end
    end
    return n
  end

  -- over is when a loan is dropped: for one to a peer when its record is over, loan.Terms.usable if all of it was returned; for one
  -- from it loan.Terms.forgotten, where latest is when the last of the same peer ends.
  local function over(kind, l, t, latest)
    if l.period > 0 then return l.till end
    local all = l.units == l.back
    if kind == 'l' then return all and l.till - t.W - min(t.T, l.T) or l.till end
    return l.till + (all and latest - t.D > l.till and min(t.lingers, 10 * t.D) or t.lingers)
  end

  -- hold keeps a loan from a peer, and when the last of that ends.
  local function hold(b, id, l)
    local peer = match(id, '^%S+')
    b.h[id], b.latest[peer] = l, max(b.latest[peer] or 0, l.till)
  end

  -- forget drops loans from peers that are over.
  local function forget(b, t)
    for id, l in pairs(b.h) do
      if over('h', l, t, b.latest[match(id, '^%S+')]) <= TIME then b.h[id], b.changed = nil, true end
    end
  end

  -- load reads the loans, without those that are over: loan.Book.settle.
  local function load(key, t)
    local b, all = { l = {}, h = {}, latest = {}, recall = 0, recall_until = 0, epoch = tonumber(t.epoch) }, call('HGETALL', key)
    local same = true
    for i = 1, #all, 2 do
      if all[i] == 'c' then
        local epoch = match(all[i + 1], '^(%d+)[ !]%d+ %-?%d+$')
        if not epoch then error('GARBAGE in ' .. key, 0) end
        same = epoch == t.epoch
        if t.period > 0 then
          same, b.epoch = tonumber(epoch) >= t.lost, max(b.epoch, tonumber(epoch))
          b.changed = not same
        end
      end
    end
    for i = 1, #all, 2 do
      local kind = sub(all[i], 1, 1)
      if kind == 'r' and same then
        local recall, till = match(all[i + 1], '^(%d+) (%d+)$')
        if not recall then error('GARBAGE in ' .. key, 0) end
        if tonumber(till) > TIME then b.recall, b.recall_until = tonumber(recall), tonumber(till) end
      elseif kind == 'l' or same and kind ~= 'c' and kind ~= 't' then
        local units, back, till, T, period, of, base = match(all[i + 1], '^(%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(%d*) ?(%d*)$')
        if not units or not b[kind] then error('GARBAGE in ' .. key, 0) end
        local l = {
          units = tonumber(units), back = tonumber(back), till = tonumber(till), T = tonumber(T) or 0, period = tonumber(period) or 0,
          of = tonumber(of) or 0, base = tonumber(base) or 0,
        }
        if not same and t.period == 0 then
          local keep = t.keep - by_slowest(t.D + t.lingers) + by_slowest(t.D + t.W + max(t.T, l.T))
          l.till = min(max(l.till, TIME + keep), TIME + keep + by_slowest(LONGEST - t.D))
        end
        local id = sub(all[i], 2)
        if kind == 'h' then hold(b, id, l) elseif over(kind, l, t) > TIME then b.l[id] = l else b.changed = true end
      end
    end
    forget(b, t)
    return b
  end

  -- own is loan.Book.own.
  local function own(t, b) return t.burnt and 0 or t.share - left(b.l, t) end

  -- save writes all anew, and returns the delta.
  local function save(key, t, b)
    local f, till, last, least, reserves = {}, MAX, 0, MAX, t.T > 0
    for _, kind in ipairs({ 'l', 'h' }) do
      for id, l in pairs(b[kind]) do
        f[#f + 1] = kind .. id
        local text = format((l.T > 0 or l.period > 0) and '%.0f %.0f %.0f %.0f' or '%.0f %.0f %.0f', l.units, l.back, l.till, l.T)
        if l.period > 0 then text = text .. format(kind == 'l' and ' %.0f %.0f %.0f' or ' %.0f', l.period, l.of, l.base) end
        f[#f + 1] = text
        if kind == 'h' and l.till > TIME and l.period == t.period and l.units > l.back then
          least, reserves = min(least, l.T), reserves or l.T > 0
        elseif kind == 'l' and l.period > t.period then
          least = min(least, MAX - 1)
        end
        local ends = kind == 'l' and over(kind, l, t) or l.till
        if ends > TIME then till = min(till, ends) end
        last = max(last, l.till)
      end
    end
    call('UNLINK', key)
    if b.recall > 0 then
      f[#f + 1] = 'r'
      f[#f + 1] = format('%.0f %.0f', b.recall, b.recall_until)
      till, last = min(till, b.recall_until), max(last, b.recall_until)
    end
    if last == 0 then return 0 end
    if reserves then
      f[#f + 1] = 't'
      f[#f + 1] = int(least)
    end
    local delta = left(b.h, t) - b.recall - (t.burnt and 0 or left(b.l, t))
    if t.period > 0 then till = t.period end
    call('HSET', key, 'c', format('%010.0f%s%016.0f %.0f', b.epoch, t.kind, till, delta), unpack(f))
    call('PEXPIRE', key, int(ceil((last - TIME + t.keep) / 1000) + 60000))
    return delta
  end

  -- bounded is how much the window may hold under the bound. It reads one field, but for the first time after
  -- a loan has ended and in a new epoch.
  local function bounded(key, t)
    if tonumber(t.epoch) == 0 then return 0 end
    local c, delta = call('HGET', key, 'c'), 0
    if c then delta = c > t.after and c < t.before and sub(c, 29) or save(key, t, load(key, t)) end
    return max(0, (t.burnt and 0 or t.share) + delta)
  end

  -- longest is how long a reservation may last: loan.Book.MaxTTL. bounded was called before, in the same period.
  local function longest(key, t)
    local whole = t.begun and min(t.T, t.ends - TIME) or t.T
    if not call('HGET', key, 'c') then return whole end
    local least = call('HGET', key, 't')
    if not least then -- another process, which knows of no reservations, wrote 'c'
      save(key, t, load(key, t))
      least = call('HGET', key, 't')
    end
    least = tonumber(least) or t.T
    if t.period > 0 and least < MAX then least = min(least, t.ends - TIME) end
    return min(whole, least)
  end

  return bounded, longest, load, save, left, full, own, over, hold, forget
end

-- counting_in has the terms of a calendar's limit be those in the period that counts: quota.Bound.In. 'c' holds in that alone.
-- begun is loan.Book.Begun.
local function counting_in(t, now, begun)
  t.begun = begun
  t.period, t.ends, t.burnt, t.past = now.number, now.ends, now.number <= t.through, 2 * t.W + 60000000
  t.kind = t.burnt and '!' or ' '
  t.after = t.epoch .. t.kind .. format('%016.0f', now.number)
  t.before = t.after .. '~'
end

-- loan_ops makes the operations on what loans has made.
local function loan_ops(_, _, load, save, left, full, own, over, hold, forget)
  local function ceiling(t, b)
    return max(0, own(t, b) + left(b.h, t))
  end

  -- unheld is loan.Book.unheld.
  local function unheld(t, b, ends) return own(t, b) + left(b.h, t, ends) - b.held end

  -- until_of is loan.Book.until.
  local function until_of(t) return t.period > 0 and t.ends + t.past or TIME + t.keep end

  -- new_id is a name for a loan to a peer that no other has: loan.Book.newID.
  local function new_id(b, peer)
    local stamp = TIME
    for other in pairs(b.l) do
      local e, s = match(other, ' (%d+) (%d+)$')
      if tonumber(e) == b.epoch then stamp = max(stamp, tonumber(s) + 1) end
    end
    return peer .. ' ' .. int(b.epoch) .. ' ' .. int(stamp)
  end

  -- lent_in returns the name of the only record of what was lent to a peer in a period: loan.Book.lentIn. '' is none: a request may
  -- name the loan of another one.
  local function lent_in(b, peer, period)
    for id, l in pairs(b.l) do
      if l.period == period and match(id, '^%S+') == peer then return id end
    end
    return ''
  end

  -- regrant is loan.Book.regrant for the record was: the name of the one that may grow, and 1 if its grant makes a loan.
  local function regrant(b, units, peer, was, named, of)
    local l = b.l[was]
    if was == named then return was end
    if l.of == of then return was, 1 end
    if l.of > of or units == 0 then return nil end
    local id, kept = new_id(b, peer), l.units - l.back
    b.l[was], b.l[id] = nil, { units = kept, back = 0, till = l.till, T = l.T, period = l.period, of = of, base = kept }
    return id, 1
  end

  local arguments = { lend = 5, accept = 8, ['return'] = 3, returned = 3, recall = 2 }
  local ops = {}

  -- lend UNITS PEER ID EPOCH PERIOD: grows the loan, or makes one, for a request of that epoch and period. Replies 'epoch stamp
  -- units new', zeros for nothing.
  function ops.lend(t, b, used, units, peer, id, of, period)
    if t.burnt or tonumber(period) ~= t.period then return '0 0 0 0' end
    local new, lent, named = nil, left(b.l, t), peer .. ' ' .. id
    units = max(0, min(tonumber(units), ceiling(t, b) - used, t.share - lent, unheld(t, b, b.ends)))
    id = t.period > 0 and lent_in(b, peer, t.period) or named
    local l = b.l[id]
    if not l then
      if units == 0 or full(b.l) then return '0 0 0 0' end
      id, new = new_id(b, peer), 1
      b.l[id] = { units = 0, back = 0, till = 0, T = 0, period = t.period, of = t.period > 0 and tonumber(of) or 0, base = 0 }
    elseif t.period > 0 then
      id, new = regrant(b, units, peer, id, named, tonumber(of))
      if not id then return '0 0 0 0' end
    elseif lent > t.share then
      return '0 0 0 0'
    end
    l = b.l[id]
    l.units, l.till, l.T, b.changed = l.units + units, max(l.till, until_of(t)), max(l.T, t.T), true
    return format('%s %.0f %d', match(id, '%d+ %d+$'), l.units - l.base, new or 0)
  end

  -- accept PEER ID UNITS NEW EPOCH TIME MAX_TTL PERIOD: a grant, with epoch and time of its request. Replies 1 if it changed
  -- anything.
  function ops.accept(t, b, _, peer, id, units, new, asked_in, asked_at, T, period)
    local till = t.period > 0 and until_of(t) or tonumber(asked_at) + t.D
    if T == '0' and t.T > 0 or tonumber(period) ~= t.period then return '0' end
    units, id = tonumber(units), peer .. ' ' .. id
    asked_in = tonumber(asked_in)
    if asked_in ~= tonumber(t.epoch) or asked_in ~= b.epoch or tonumber(asked_at) > TIME or till <= TIME then return '0' end
    local l = b.h[id]
    if l and units <= l.units and till <= l.till or not l and (new ~= '1' or full(b.h)) then return '0' end
    l = l or { units = 0, back = 0, till = 0, T = 0, period = t.period, of = 0, base = 0 }
    if till > l.till then l.till, l.T = till, tonumber(T) end
    l.units, b.changed = max(l.units, units), true
    hold(b, id, l)
    forget(b, t)
    return '1'
  end

  -- return UNITS PEER ID: returns units of a loan, as far as they are not used: loan.Book.free. Replies all that was
  -- returned of it.
  ops['return'] = function(t, b, used, units, peer, id)
    id = peer .. ' ' .. id
    local l = b.h[id]
    if not l then return '0' end
    if l.period ~= t.period then return int(l.back) end
    local rest = l.units - l.back
    local free = min(own(t, b) + left(b.h, t) - used, unheld(t, b, min(b.ends, l.till + l.T)))
    local n = max(0, min(tonumber(units), rest, free + (l.till > TIME and 0 or rest)))
    if n > 0 then l.back, b.changed = l.back + n, true end
    forget(b, t)
    return int(l.back)
  end

  -- returned UNITS PEER ID: all that a borrower has returned of a loan so far.
  function ops.returned(t, b, _, units, peer, id)
    id = peer .. ' ' .. id
    local l = b.l[id]
    units = l and min(tonumber(units), l.units - l.base) or 0
    if l and units > l.back then
      l.back, b.changed = units, true
      if over('l', l, t) <= TIME then b.l[id] = nil end
    end
    return '0'
  end

  -- recall UNITS UNTIL: admissions leave so much unused.
  function ops.recall(t, b, _, units, till)
    if t.period > 0 then return '0' end
    b.recall, b.recall_until, b.changed = tonumber(units), tonumber(till), true
    if b.recall_until <= TIME then b.recall = 0 end
    return '0'
  end

  -- run carries out operations, which begin at ARGV[p] and end before ARGV[last], while open reservations hold so many units until
  -- TIME is ends at the latest. now is the period that counts under a calendar's limit.
  -- It replies what the window or the period and they hold, number and end of the period (0 0 for none) and the state after all:
  -- epoch, recall, its end, number of loans to peers, 'peer epoch stamp units back until max_ttl period borrower base' of each, the same
  -- of those from peers, then the reply of each operation.
  local function run(log_key, key, held, ends, t, now, p, last)
    if tonumber(t.epoch) == 0 then error('the epoch of the region is not known', 0) end
    local n = held + (now and now.units or used(load_log(log_key, { longest = t.W }), { j = 1, W = t.counted, since = t.since }))
    local b = load(key, t)
    local replies = {}
    b.held, b.ends = held, ends
    while p < last do
      local op = ARGV[p]
      local count = arguments[op]
      replies[#replies + 1] = ops[op](t, b, n, unpack(ARGV, p + 1, p + count))
      p = p + 1 + count
    end
    if b.changed then save(key, t, b) end
    local reply = { int(n), int(t.period), int(now and now.ends or 0), int(b.epoch), int(b.recall), int(b.recall > 0 and b.recall_until or 0) }
    for _, kind in ipairs({ 'l', 'h' }) do
      local count = #reply + 1
      reply[count] = 0
      for id, l in pairs(b[kind]) do
        reply[count] = reply[count] + 1
        reply[#reply + 1] = format('%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f', id, l.units, l.back, l.till, l.T, l.period, l.of, l.base)
      end
    end
    return table.concat(reply, ' ') .. ' ' .. table.concat(replies, ' ')
  end

  return run
end
