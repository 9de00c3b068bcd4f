-- Delete a member if it still is this incarnation, guarded.
-- KEYS: leader, epoch, members, beats
-- ARGV: holder id, epoch, worker id, incarnation
-- Returns: {'OK'} (also if there was nothing to delete) or {'REFUSED', why, holder, epoch}.
local held, refusal = guard(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not held then
  return refusal
end
local raw = redis.call('HGET', KEYS[3], ARGV[3])
if not raw then
  return {'OK'}
end
local good, member = pcall(cjson.decode, raw)
if not good or type(member) ~= 'table' then
  return redis.error_reply('FORMAT ' .. KEYS[3] .. ' ' .. ARGV[3] .. ': not a member of ours')
end
if member.incarnation == ARGV[4] then
  redis.call('HDEL', KEYS[3], ARGV[3])
  redis.call('ZREM', KEYS[4], ARGV[3])
end
return {'OK'}
