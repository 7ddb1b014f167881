-- loans.lua: the loans of a partition under one bounded limit, as loan.Book, made when a plan first asks for them.
--
-- A hash, or nothing while nobody lends or borrows:
--   'c'                    'epoch till delta', of 10, 16 and 16 digits: by how much loans and the recall change what may be
--                          admitted, until TIME is till. 'epoch!till delta' while the share is burnt
--   'r'                    'recall until', if there is one
--   'l<peer> epoch stamp'  'units back until max_ttl' of a loan to a peer, the last where there are reservations; h for one from it
--   't'                    how long the loans from peers that 'c' counts allow a reservation to last, µs, where there are reservations
--
-- The terms t of a bound: share, burnt, epoch (10 digits), kind (what stands behind it in 'c'), after and before (what 'c' is
-- between while it holds), since (TIME when the epoch began, false while all of the window counts), keep and D (µs),
-- the limit's W, counted, the window by this server's clock where that is fast, T (max_ttl of reservations, µs, 0 for none),
-- and lingers, W and T. Of a calendar's limit, which nobody lends under, through is the last period for which the share is burnt.

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

  -- left is what is left of loans, without those that are over, and those on which no reservation may last until then.
  local function left(of, ends)
    local n = 0
    for _, l in pairs(of) do
      if l.till > TIME and (not ends or l.till + l.T >= ends) then n = n + l.units - l.back end
    end
    return n
  end

  -- over is when a loan is dropped: for one to a peer when its record is over, loan.Terms.usable if all of it was returned; for one
  -- from it loan.Terms.forgotten, where latest is when the last of the same peer ends.
  local function over(kind, l, t, latest)
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
    local b, all = { l = {}, h = {}, latest = {}, recall = 0, recall_until = 0 }, call('HGETALL', key)
    local same = true
    for i = 1, #all, 2 do
      if all[i] == 'c' then
        local epoch = match(all[i + 1], '^(%d+)[ !]%d+ %-?%d+$')
        if not epoch then error('GARBAGE in ' .. key, 0) end
        same = epoch == t.epoch
      end
    end
    for i = 1, #all, 2 do
      local kind = sub(all[i], 1, 1)
      if kind == 'r' and same then
        local recall, till = match(all[i + 1], '^(%d+) (%d+)$')
        if not recall then error('GARBAGE in ' .. key, 0) end
        if tonumber(till) > TIME then b.recall, b.recall_until = tonumber(recall), tonumber(till) end
      elseif kind == 'l' or same and kind ~= 'c' and kind ~= 't' then
        local units, back, till, T = match(all[i + 1], '^(%d+) (%d+) (%d+) ?(%d*)$')
        if not units or not b[kind] then error('GARBAGE in ' .. key, 0) end
        local l = { units = tonumber(units), back = tonumber(back), till = tonumber(till), T = tonumber(T) or 0 }
        if not same then
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
  local function own(t, b) return t.burnt and 0 or t.share - left(b.l) end

  -- save writes all anew, and returns the delta.
  local function save(key, t, b)
    local f, till, last, least, reserves = {}, MAX, 0, MAX, t.T > 0
    for _, kind in ipairs({ 'l', 'h' }) do
      for id, l in pairs(b[kind]) do
        f[#f + 1] = kind .. id
        f[#f + 1] = format(l.T > 0 and '%.0f %.0f %.0f %.0f' or '%.0f %.0f %.0f', l.units, l.back, l.till, l.T)
        if kind == 'h' and l.till > TIME and l.units > l.back then least, reserves = min(least, l.T), reserves or l.T > 0 end
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
    local delta = left(b.h) - b.recall - (t.burnt and 0 or left(b.l))
    call('HSET', key, 'c', format('%s%s%016.0f %016.0f', t.epoch, t.kind, till, delta), unpack(f))
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

  -- longest is how long a reservation may last: loan.Book.MaxTTL. bounded was called before.
  local function longest(key, t)
    if not call('HGET', key, 'c') then return t.T end
    local least = call('HGET', key, 't')
    if not least then -- another process, which knows of no reservations, wrote 'c'
      save(key, t, load(key, t))
      least = call('HGET', key, 't')
    end
    return min(t.T, tonumber(least) or t.T)
  end

  return bounded, longest, load, save, left, full, own, over, hold, forget
end

-- loan_ops makes the operations on what loans has made.
local function loan_ops(_, _, load, save, left, full, own, over, hold, forget)
  local function ceiling(t, b)
    return max(0, own(t, b) + left(b.h))
  end

  -- unheld is loan.Book.unheld.
  local function unheld(t, b, ends) return own(t, b) + left(b.h, ends) - b.held end

  local arguments = { lend = 3, accept = 7, ['return'] = 3, returned = 3, recall = 2 }
  local ops = {}

  -- lend UNITS PEER ID: grows the loan, or makes one. Replies 'epoch stamp units new', zeros for nothing.
  function ops.lend(t, b, used, units, peer, id)
    if t.burnt then return '0 0 0 0' end
    local new, lent = nil, left(b.l)
    units, id = max(0, min(tonumber(units), ceiling(t, b) - used, t.share - lent, unheld(t, b, b.ends))), peer .. ' ' .. id
    local l = b.l[id]
    if not l then
      if units == 0 or full(b.l) then return '0 0 0 0' end
      local stamp = TIME
      for other in pairs(b.l) do
        local e, s = match(other, ' (%d+) (%d+)$')
        if tonumber(e) == tonumber(t.epoch) then stamp = max(stamp, tonumber(s) + 1) end
      end
      id, new = peer .. ' ' .. int(tonumber(t.epoch)) .. ' ' .. int(stamp), 1
      l = { units = 0, back = 0, till = 0, T = 0 }
      b.l[id] = l
    elseif lent > t.share then
      return '0 0 0 0'
    end
    l.units, l.till, l.T, b.changed = l.units + units, max(l.till, TIME + t.keep), max(l.T, t.T), true
    return format('%s %.0f %d', match(id, '%d+ %d+$'), l.units, new or 0)
  end

  -- accept PEER ID UNITS NEW EPOCH TIME MAX_TTL: a grant, with epoch and time of its request. Replies 1 if it changed anything.
  function ops.accept(t, b, _, peer, id, units, new, asked_in, asked_at, T)
    local till = tonumber(asked_at) + t.D
    if T == '0' and t.T > 0 then return '0' end
    units, id = tonumber(units), peer .. ' ' .. id
    if tonumber(asked_in) ~= tonumber(t.epoch) or tonumber(asked_at) > TIME or till <= TIME then return '0' end
    local l = b.h[id]
    if l and units <= l.units and till <= l.till or not l and (new ~= '1' or full(b.h)) then return '0' end
    l = l or { units = 0, back = 0, till = 0, T = 0 }
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
    local rest = l.units - l.back
    local free = min(own(t, b) + left(b.h) - used, unheld(t, b, min(b.ends, l.till + l.T)))
    local n = max(0, min(tonumber(units), rest, free + (l.till > TIME and 0 or rest)))
    if n > 0 then l.back, b.changed = l.back + n, true end
    forget(b, t)
    return int(l.back)
  end

  -- returned UNITS PEER ID: all that a borrower has returned of a loan so far.
  function ops.returned(t, b, _, units, peer, id)
    id = peer .. ' ' .. id
    local l = b.l[id]
    units = l and min(tonumber(units), l.units) or 0
    if l and units > l.back then
      l.back, b.changed = units, true
      if over('l', l, t) <= TIME then b.l[id] = nil end
    end
    return '0'
  end

  -- recall UNITS UNTIL: admissions leave so much unused.
  function ops.recall(_, b, _, units, till)
    b.recall, b.recall_until, b.changed = tonumber(units), tonumber(till), true
    if b.recall_until <= TIME then b.recall = 0 end
    return '0'
  end

  -- run carries out operations, which begin at ARGV[p] and end before ARGV[last], while open reservations hold so many units until
  -- TIME is ends at the latest.
  -- It replies what the window and they hold and the state after all: recall, its end, number of loans to peers,
  -- 'peer epoch stamp units back until max_ttl' of each, the same of those from peers, then the reply of each operation.
  local function run(log_key, key, held, ends, t, p, last)
    if tonumber(t.epoch) == 0 then error('the epoch of the region is not known', 0) end
    local n, b = used(load_log(log_key, { longest = t.W }), { j = 1, W = t.counted, since = t.since }) + held, load(key, t)
    local replies = {}
    b.held, b.ends = held, ends
    while p < last do
      local op = ARGV[p]
      local count = arguments[op]
      replies[#replies + 1] = ops[op](t, b, n, unpack(ARGV, p + 1, p + count))
      p = p + 1 + count
    end
    if b.changed then save(key, t, b) end
    local reply = { int(n), int(b.recall), int(b.recall > 0 and b.recall_until or 0) }
    for _, kind in ipairs({ 'l', 'h' }) do
      local count = #reply + 1
      reply[count] = 0
      for id, l in pairs(b[kind]) do
        reply[count] = reply[count] + 1
        reply[#reply + 1] = format('%s %.0f %.0f %.0f %.0f', id, l.units, l.back, l.till, l.T)
      end
    end
    return table.concat(reply, ' ') .. ' ' .. table.concat(replies, ' ')
  end

  return run
end
