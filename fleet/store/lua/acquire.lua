-- Take the lease if nobody else holds it.
-- KEYS: leader, epoch, map
-- ARGV: id, http, internal, request, floor, ttl in ms, highest epoch allowed, format
-- Returns: the standing; or {'REFUSED', why, holder, epoch} if the epoch would pass the highest.
local record, bad = read_leader(KEYS[1])
if bad then
  return bad
end
if record and record.id ~= ARGV[1] then
  return standing(KEYS[1], KEYS[2], KEYS[3])
end
if record and record.request == ARGV[4] then
  -- A repetition: the first try landed, its answer was lost.
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
  return standing(KEYS[1], KEYS[2], KEYS[3])
end
local stored, wrong = read_epoch(KEYS[2])
if wrong then
  return wrong
end
if record then
  stored = math.max(stored, record.number)
end
local published = parse_head(read_head(KEYS[3]))
if published then
  stored = math.max(stored, published)
end
local epoch = math.max(stored, tonumber(ARGV[5])) + 1
if epoch > tonumber(ARGV[7]) then
  local holder = record and record.id or ''
  return {'REFUSED', 'epoch ' .. digits(epoch) .. ' is above ' .. ARGV[7], holder, digits(stored)}
end
redis.call('SET', KEYS[2], digits(epoch))
local value = cjson.encode({
  format = tonumber(ARGV[8]),
  id = ARGV[1],
  http = ARGV[2],
  internal = ARGV[3],
  request = ARGV[4],
  epoch = digits(epoch),
})
redis.call('SET', KEYS[1], value, 'PX', ARGV[6])
return standing(KEYS[1], KEYS[2], KEYS[3])
