-- life.lua: counts one more probe in the life of a server's data, and begins a new life where data were lost.
--
-- KEYS  the life: 'number:start (TIME, µs):writes'. Now and then also a key that holds nothing: then the user is asked for
--       all commands that scripts call, since one that is refused half way through a decision has charged already
-- ARGV  a number for a new life, then the life and the writes that the caller saw last ('' 0 at first)
-- Reply the life, as it is now; an error that names the commands that the user may not call

local key, refused = KEYS[2], {}
for _, c in ipairs(key and {
  { 'SET', key, '1', 'PX', '1000' }, { 'RPUSH', key, '1' }, { 'HSET', key, 'f', '1' }, { 'PEXPIRE', key, '1000' },
  { 'GET', key }, { 'HGET', key, 'f' }, { 'HGETALL', key }, { 'HDEL', key, 'f' }, { 'LINDEX', key, '0' }, { 'LLEN', key },
  { 'LSET', key, '0', '1' }, { 'LTRIM', key, '0', '1' }, { 'UNLINK', key }, { 'TIME' },
} or {}) do
  local reply = redis.pcall(unpack(c)) -- most find a value of another type, after the user's rights were looked at
  local err = type(reply) == 'table' and reply.err or ''
  if string.find(err, 'NOPERM', 1, true) or string.find(err, "The user executing the script can't", 1, true) then
    refused[#refused + 1] = '+' .. string.lower(c[1])
  elseif c[1] == 'SET' and err ~= '' then
    return reply -- out of memory, or else: after a write that needs no memory Redis looks no more, and the last SET would succeed
  end
end
if #refused > 0 then
  return redis.error_reply('NOPERM the user needs ' .. table.concat(refused, ' ') .. ' on keys rl:*; see deploy/redis.acl')
end

local t = redis.call('TIME')
local life, start, writes = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(%d+):(%d+)$')
if not life or life == ARGV[2] and tonumber(writes) < tonumber(ARGV[3]) then
  life, start, writes = ARGV[1], string.format('%.0f', t[1] * 1000000 + t[2]), 0
end
local now = life .. ':' .. start .. ':' .. string.format('%.0f', writes + 1)
redis.call('SET', KEYS[1], now)
return now
