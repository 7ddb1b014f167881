-- clock.lua: a partition's clock, which never goes back.

local STEP_US = 1000000 -- quota.stepUS

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
local function wait(s, due) return due - s.offset - (s.time or TIME) end
