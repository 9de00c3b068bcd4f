-- Extend the lease if it is held by this holder in this epoch; else change nothing.
-- KEYS: leader, epoch, map
-- ARGV: id, epoch, ttl in ms
-- Returns: the standing.
local record, bad = read_leader(KEYS[1])
if bad then
  return bad
end
if record and record.id == ARGV[1] and record.number == tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  local stored, wrong = read_epoch(KEYS[2])
  if wrong then
    return wrong
  end
  if stored < record.number then
    -- The counter was evicted or lost; the lease still knows it.
    redis.call('SET', KEYS[2], digits(record.number))
  end
end
return standing(KEYS[1], KEYS[2], KEYS[3])
