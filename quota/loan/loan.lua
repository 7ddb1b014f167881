-- loan.lua: loans of one partition and limit, as package loan's Book. Joined behind now.lua, base.lua and log.lua.
--
-- KEYS  the partition's log, and its loans: a hash, or nothing while nobody lends or borrows
--   'c'                    'epoch till delta recall until', the first two of 10 and 16 digits: by how much loans change the
--                          ceiling of admissions, until TIME is till; recall is part of it, until its end
--   'l<peer> epoch stamp'  'units back until' of a loan to a peer; h for one from it
-- ARGV  region's epoch, lost, share, W, D, keep (µs), operation and its arguments (see ops)

local log_key, key = KEYS[1], KEYS[2]
local sub = string.sub
local epoch, lost, share = format('%010.0f', ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local W, D, keep = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local closed = lost > 0 and TIME < lost + keep

local function left(loans)
  local n = 0
  for _, l in pairs(loans) do n = n + l.units - l.back end
  return n
end

-- load_loans reads the loans, without those that are over: loan.Book.settle.
local function load_loans()
  local b, all = { l = {}, h = {}, recall = 0, recall_until = 0 }, call('HGETALL', key)
  local same = true
  for i = 1, #all, 2 do
    if all[i] == 'c' then
      local e, recall, till = match(all[i + 1], '^(%d+) %d+ %-?%d+ (%d+) (%d+)$')
      same = e == epoch
      if same and tonumber(till) > TIME then b.recall, b.recall_until = tonumber(recall), tonumber(till) end
    end
  end
  for i = 1, #all, 2 do
    local kind = all[i]:sub(1, 1)
    if kind ~= 'c' and (same or kind == 'l') then
      local units, back, till = match(all[i + 1], '^(%d+) (%d+) (%d+)$')
      local l = { units = tonumber(units), back = tonumber(back), till = same and tonumber(till) or TIME + keep }
      if l.till > TIME then b[kind][all[i]:sub(2)] = l end
    end
  end
  return b
end

-- save_loans writes all anew, and returns the delta.
local function save_loans(b)
  local f, till, last = {}, MAX, 0
  for _, kind in ipairs({ 'l', 'h' }) do
    for id, l in pairs(b[kind]) do
      f[#f + 1] = kind .. id
      f[#f + 1] = format('%.0f %.0f %.0f', l.units, l.back, l.till)
      till, last = min(till, l.till), max(last, l.till)
    end
  end
  call('DEL', key)
  if b.recall > 0 then till, last = min(till, b.recall_until), max(last, b.recall_until) end
  if last == 0 then return 0 end
  local delta = left(b.h) - left(b.l) - b.recall
  call('HSET', key, 'c', format('%s %016.0f %.0f %.0f %.0f', epoch, till, delta, b.recall, b.recall_until), unpack(f))
  call('PEXPIRE', key, int(ceil((last - TIME + keep) / 1000) + 60000))
  return delta
end

-- loans_delta is all that a decision reads: what to add to the share.
local function loans_delta()
  local c = call('HGET', key, 'c')
  if not c then return 0 end
  if sub(c, 1, 10) == epoch and sub(c, 12, 27) > NOW then return tonumber(match(c, '%S+', 29)) end
  return save_loans(load_loans())
end

local function in_window()
  return used(load_log(log_key, { longest = W }), { j = 1, W = W })
end

local function ceiling(b)
  if closed then return 0 end
  return max(0, share - left(b.l) + left(b.h))
end

local ops = {}

-- room: what may be admitted now.
function ops.room()
  local delta = loans_delta()
  if closed then return '0' end
  return int(max(0, share + delta - in_window()))
end

-- lend UNITS PEER ID: grows the loan, or makes one. The reply is 'epoch stamp units new', or '' for nothing.
function ops.lend(units, peer, id)
  if closed then return '' end
  local b, new = load_loans(), nil
  local lent = left(b.l)
  units = max(0, min(tonumber(units), ceiling(b) - in_window(), share - lent))
  id = peer .. ' ' .. id
  local l = b.l[id]
  if not l then
    if units == 0 then return '' end
    local stamp = TIME
    for other in pairs(b.l) do
      local e, s = match(other, ' (%d+) (%d+)$')
      if tonumber(e) == tonumber(epoch) then stamp = max(stamp, tonumber(s) + 1) end
    end
    id, new = format('%s %s %.0f', peer, ARGV[1], stamp), 1
    l = { units = 0, back = 0, till = 0 }
    b.l[id] = l
  elseif lent > share then
    return ''
  end
  l.units, l.till = l.units + units, max(l.till, TIME + keep)
  save_loans(b)
  return format('%s %.0f %d', match(id, '%d+ %d+$'), l.units, new or 0)
end

-- accept PEER ID UNITS NEW EPOCH TIME: a grant, with epoch and time of its request. 1 if it changed anything.
function ops.accept(peer, id, units, new, asked_in, asked_at)
  local till = tonumber(asked_at) + D
  units, id = tonumber(units), peer .. ' ' .. id
  if asked_in ~= ARGV[1] or tonumber(asked_at) > TIME or till <= TIME then return '0' end
  local b = load_loans()
  local l = b.h[id]
  if l and units <= l.units and till <= l.till or not l and new ~= '1' then return '0' end
  l = l or { units = 0, back = 0, till = 0 }
  l.units, l.till = max(l.units, units), max(l.till, till)
  b.h[id] = l
  save_loans(b)
  return '1'
end

-- return UNITS PEER ID: returns units of a loan, as far as they are not used. The reply is all that was returned of it.
ops['return'] = function(units, peer, id)
  local b = load_loans()
  local l = b.h[peer .. ' ' .. id]
  if not l then return '0' end
  local n = max(0, min(tonumber(units), l.units - l.back, ceiling(b) - in_window()))
  if n > 0 then
    l.back = l.back + n
    save_loans(b)
  end
  return int(l.back)
end

-- returned UNITS PEER ID: all that a borrower has returned of a loan so far.
function ops.returned(units, peer, id)
  local b = load_loans()
  local l = b.l[peer .. ' ' .. id]
  units = l and min(tonumber(units), l.units) or 0
  if l and units > l.back then
    l.back = units
    save_loans(b)
  end
  return '1'
end

-- recall UNITS UNTIL: admissions leave so much unused.
function ops.recall(units, till)
  local b = load_loans()
  b.recall, b.recall_until = tonumber(units), tonumber(till)
  if b.recall_until <= TIME then b.recall = 0 end
  save_loans(b)
  return '1'
end

return ops[ARGV[7]](unpack(ARGV, 8))
