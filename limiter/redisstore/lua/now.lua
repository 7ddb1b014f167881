-- now.lua: the region's time, in whole microseconds, read once per script call.
-- TIME is not frozen inside a script before Redis 7.2, so nothing reads it twice.
-- Tests join another file in its place and move time by hand.
local t = redis.call('TIME')
local TIME = t[1] * 1000000 + t[2]
