-- base.lua: what all kinds of keys share. Joined behind now.lua, which defines TIME.
--
-- Every number is an integer below 2^53, and becomes text through '%.0f' alone: tostring keeps 14
-- digits, which makes neighbouring microseconds equal.

local call, error, tonumber = redis.call, error, tonumber
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local format, match = string.format, string.match
local MAX = 9007199254740992

local function int(n) return format('%.0f', n) end

local NOW = int(TIME)

-- tick returns a partition's clock: now, offset, and whether the offset is another than what was
-- kept, and so has to be kept anew. It is quota.TickAt.
local function tick(newest, kept)
  if TIME >= newest then return TIME, 0, kept ~= 0 end
  local offset = kept
  if kept == 0 or TIME + kept < newest then offset = newest - TIME end
  return TIME + offset, offset, offset ~= kept
end

-- wait is how long TIME takes until the clock of state s reaches due: quota.Tick.Until.
local function wait(s, due)
  if s.offset > 0 and due - s.offset < s.newest then
    return due - s.offset - TIME
  end
  return due - TIME
end
