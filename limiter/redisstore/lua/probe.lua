-- probe.lua: fails where a decision would: on a server that is read-only, out of memory, or refuses its user a command.
--
-- KEYS  a key that holds nothing, named as keys of checks are
-- ARGV  'rights' now and then: then the user is asked for all commands that scripts call, since one that is refused half way
--       through a decision has charged already
-- Reply an error that names the commands that the user may not call

local key, refused = KEYS[1], {}
local commands = {
  { 'SET', key, '1', 'PX', '1000' }, { 'RPUSH', key, '1' }, { 'HSET', key, 'f', '1' }, { 'PEXPIRE', key, '1000' },
  { 'GET', key }, { 'HGET', key, 'f' }, { 'HGETALL', key }, { 'HDEL', key, 'f' }, { 'HINCRBY', key, 'f', '1' }, { 'HSCAN', key, '0' }, { 'LINDEX', key, '0' }, { 'LLEN', key },
  { 'LSET', key, '0', '1' }, { 'LTRIM', key, '0', '1' }, { 'UNLINK', key }, { 'TIME' },
  { 'ZRANGE', key, '0', '1' }, { 'ZADD', key, '0', '1' }, { 'ZREM', key, '1' }, { 'ZREMRANGEBYRANK', key, '0', '0' }, { 'ZSCORE', key, '1' },
  { 'INFO', 'server' },
}
for i = 1, ARGV[1] == 'rights' and #commands or 1 do
  local c = commands[i]
  local reply = redis.pcall(unpack(c)) -- most find a value of another type, after the user's rights were looked at
  local err = type(reply) == 'table' and reply.err or ''
  if string.find(err, 'NOPERM', 1, true) or string.find(err, "The user executing the script can't", 1, true) then
    refused[#refused + 1] = '+' .. string.lower(c[1])
  elseif c[1] == 'SET' and err ~= '' then
    return reply -- out of memory, or else: after a write that needs no memory Redis looks no more
  end
end
if #refused > 0 then
  return redis.error_reply('NOPERM the user needs ' .. table.concat(refused, ' ') .. ' on keys rl:*; see deploy/redis.acl')
end
return 'OK'
