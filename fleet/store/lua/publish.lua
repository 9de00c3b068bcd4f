-- Write one generation of the map with all that goes with it, guarded.
-- KEYS: leader, epoch, map, ring, moves, a key per share to write, a key per share to delete
-- ARGV: holder id, epoch, '1' if its lease is elsewhere, longest stream, map, ring, number of shares, a value per share, two values per entry of the stream: its last move, those before it or ''
-- Returns: {'OK'} (also for a repetition) or {'REFUSED', why, holder, epoch}.
local FIRST_SHARE_KEY, FIRST_VALUE = 6, 8
local held, refusal = may_write(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3])
if not held then
  return refusal
end
local epoch, version = parse_head(ARGV[5])
if epoch ~= tonumber(ARGV[2]) then
  return {'REFUSED', 'the map is of another epoch', ARGV[1], ARGV[2]}
end
local old_epoch, old_version = parse_head(read_head(KEYS[3]))
if old_epoch and old_epoch == epoch and old_version == version then
  if redis.call('GET', KEYS[3]) == ARGV[5] then
    return {'OK'}
  end
  return {'REFUSED', 'another map was published under this version', ARGV[1], ARGV[2]}
end
if old_epoch and (old_epoch > epoch or (old_epoch == epoch and old_version > version)) then
  return {'REFUSED', 'a higher version is stored', ARGV[1], digits(old_epoch)}
end
redis.call('SET', KEYS[3], ARGV[5])
redis.call('SET', KEYS[4], ARGV[6])
local shares = tonumber(ARGV[7])
for i = 0, shares - 1 do
  redis.call('SET', KEYS[FIRST_SHARE_KEY + i], ARGV[FIRST_VALUE + i])
end
for i = FIRST_SHARE_KEY + shares, #KEYS do
  redis.call('DEL', KEYS[i])
end
for i = FIRST_VALUE + shares, #ARGV, 2 do
  local last, earlier = ARGV[i], ARGV[i + 1]
  if earlier == '' then
    redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[4], '*', 'move', last)
  else
    redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[4], '*', 'move', last, 'earlier', earlier)
  end
end
return {'OK'}
