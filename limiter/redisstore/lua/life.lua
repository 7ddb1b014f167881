-- life.lua: counts one more probe in the life of a server's data, and begins a new life where data were lost.
--
-- KEYS  the life: 'number:start (TIME, µs):writes'
-- ARGV  a number for a new life, then the life and the writes that the caller saw last ('' 0 at first)
-- Reply the life, as it is now

local t = redis.call('TIME')
local life, start, writes = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(%d+):(%d+)$')
if not life or life == ARGV[2] and tonumber(writes) < tonumber(ARGV[3]) then
  life, start, writes = ARGV[1], string.format('%.0f', t[1] * 1000000 + t[2]), 0
end
local now = life .. ':' .. start .. ':' .. string.format('%.0f', writes + 1)
redis.call('SET', KEYS[1], now)
return now
