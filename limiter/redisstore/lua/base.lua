-- base.lua: what all kinds of keys share. Joined behind now.lua, which defines TIME.
--
-- Every number is an integer below 2^53. Times become text through '%.0f' alone: tostring and .. keep 14
-- digits, which makes neighbouring microseconds equal. Units and numbers of buckets are below 10^14, and ..
-- takes them as they are: it costs half.
--
-- Redis runs the whole script for each call, and to make a function costs as much as to run a short one. So what
-- only uncommon checks need is inside functions that make it when the first of them comes.

local call, error, tonumber, KEYS, ARGV = redis.call, error, tonumber, KEYS, ARGV
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local format, match, sub = string.format, string.match, string.sub
local MAX = 9007199254740992

local function int(n) return format('%.0f', n) end

local NOW = int(TIME)

-- The reply: replies end at r. It is locals, since each check adds to it.
local replies, r = { ARGV[1] .. ' ' .. NOW }, 1

-- Partitions that several uncommon checks of one call share are read once: TIME does not move in between, so what
-- was found stays true, and each charge is added to it.
local states = {}

-- whole reads a number that we wrote, nil for nothing. It raises for one that we cannot have written:
-- arithmetic on it would fail half way through the writes.
local function whole(text, key)
  local n = tonumber(text)
  if n and n >= MAX then error('GARBAGE in ' .. key, 0) end
  return n
end

-- longer is for how long a key lives whose life is set once a window.
local function longer(k) return int(ceil(k.ttl + k.longest / 1000)) end
