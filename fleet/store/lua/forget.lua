-- Delete a member if it still is this incarnation, guarded.
-- KEYS: leader, epoch, map, members, beats
-- ARGV: holder id, epoch, '1' if its lease is elsewhere, worker id, incarnation
-- Returns: {'OK'} (also if there was nothing to delete) or {'REFUSED', why, holder, epoch}.
local held, refusal = may_write(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3])
if not held then
  return refusal
end
local raw = redis.call('HGET', KEYS[4], ARGV[4])
if not raw then
  return {'OK'}
end
local good, member = pcall(cjson.decode, raw)
if not good or type(member) ~= 'table' then
  return redis.error_reply('FORMAT ' .. KEYS[4] .. ' ' .. ARGV[4] .. ': not a member of ours')
end
if member.incarnation == ARGV[5] then
  redis.call('HDEL', KEYS[4], ARGV[4])
  redis.call('ZREM', KEYS[5], ARGV[4])
end
return {'OK'}
