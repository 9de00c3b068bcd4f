-- Give the lease up if it is held by this holder in this epoch; else do nothing.
-- KEYS: leader, epoch
-- ARGV: id, epoch
-- Returns: {'OK'} or {'REFUSED', why, holder, epoch}.
local held, refusal = guard(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not held then
  return refusal
end
redis.call('DEL', KEYS[1])
return {'OK'}
