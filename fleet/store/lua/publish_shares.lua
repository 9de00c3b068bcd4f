-- Write shares behind the map that they follow from, guarded. None is replaced or deleted by an older one.
-- KEYS: leader, epoch, map, a key per share to write, a key per share to delete
-- ARGV: holder id, epoch, '1' if its lease is elsewhere, version of the map, number of shares, a value per share
-- Returns: {'OK'} (also for a repetition) or {'REFUSED', why, holder, epoch}.
local FIRST_SHARE_KEY, FIRST_VALUE = 4, 6
local held, refusal = may_write(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3])
if not held then
  return refusal
end
local function is_older(key, epoch, version)
  local old_epoch, old_version = parse_head(read_head(key))
  return not old_epoch or old_epoch < epoch or (old_epoch == epoch and old_version < version)
end
local writer = tonumber(ARGV[2])
local shares = tonumber(ARGV[5])
for i = 0, shares - 1 do
  if parse_head(ARGV[FIRST_VALUE + i]) ~= writer then
    return {'REFUSED', 'a share is of another epoch', ARGV[1], ARGV[2]}
  end
end
for i = 0, shares - 1 do
  local key, value = KEYS[FIRST_SHARE_KEY + i], ARGV[FIRST_VALUE + i]
  local epoch, version = parse_head(value)
  if is_older(key, epoch, version) then
    redis.call('SET', key, value)
  end
end
for i = FIRST_SHARE_KEY + shares, #KEYS do
  if is_older(KEYS[i], writer, tonumber(ARGV[4])) then
    redis.call('DEL', KEYS[i])
  end
end
return {'OK'}
