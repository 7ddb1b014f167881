-- base.lua: what all kinds of keys share. Joined behind now.lua, which defines TIME.
--
-- Every number is an integer below 2^53, and becomes text through '%.0f' alone: tostring keeps 14
-- digits, which makes neighbouring microseconds equal.

local call, error, tonumber = redis.call, error, tonumber
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local format, match = string.format, string.match
local MAX = 9007199254740992
local STEP_US = 1000000 -- quota.stepUS

local function int(n) return format('%.0f', n) end

local NOW = int(TIME)

-- whole reads a number that we wrote, nil for nothing. It raises for one that we cannot have written:
-- arithmetic on it would fail half way through the writes.
local function whole(text, key)
  local n = tonumber(text)
  if n and n >= MAX then error('GARBAGE in ' .. key, 0) end
  return n
end

-- tick sets the clock of state s: now, offset, seen, and stepped, whether a decision has to keep them. kept
-- is the offset that was kept, 0 for none, and seen the TIME then. It is quota.TickAt.
local function tick(s, newest, kept, seen)
  s.newest, s.now, s.offset, s.seen, s.stepped = newest, TIME, 0, 0, kept > 0
  if kept == 0 then
    if TIME >= newest then return end
    s.offset, s.seen = newest - TIME, TIME
  elseif TIME - seen >= kept then
    return
  elseif seen - TIME >= STEP_US then
    s.offset, s.seen = kept + seen - TIME, TIME
  else
    s.offset, s.seen = kept, max(seen, TIME)
  end
  s.now, s.stepped = max(newest, TIME + s.offset), true
end

-- mark is how a state's offset is written behind its newest stamp.
local function mark(s)
  if s.offset == 0 then return '' end
  return '+' .. int(s.offset) .. '@' .. int(s.seen)
end

-- wait is how long TIME takes until the clock of state s reaches due: quota.Tick.Until.
local function wait(s, due)
  local at = due - s.offset -- TIME then, if the offset is still kept
  if at - s.seen < s.offset then return at - TIME end
  return due - TIME
end
