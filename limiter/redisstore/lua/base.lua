-- base.lua: what all kinds of keys share. Joined behind now.lua, which defines TIME.
--
-- Every number is an integer below 2^53. Times become text through '%.0f' alone: tostring and .. keep 14
-- digits, which makes neighbouring microseconds equal. Units and numbers of buckets are below 10^14, and ..
-- takes them as they are: it costs half.

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

-- tick sets the clock of state s: now, offset, and stepped, whether the offset has to be kept anew. kept is
-- the offset that was kept, 0 for none, and empties the time at which nothing of it is used any more. It is
-- quota.PartitionClockAt.
local function tick(s, newest, kept, empties)
  local offset = TIME >= newest and TIME >= empties and 0 or kept
  if newest - (TIME + offset) >= STEP_US then offset = newest - TIME end
  s.newest, s.now, s.offset, s.stepped = newest, max(newest, TIME + offset), offset, offset ~= kept
end

-- mark is how a state's offset is written behind its newest stamp.
local function mark(s)
  if s.offset == 0 then return '' end
  return '+' .. int(s.offset)
end

-- wait is how long TIME takes until the clock of state s reaches due, which it has not: quota.PartitionClock.Until.
local function wait(s, due) return due - s.offset - TIME end
