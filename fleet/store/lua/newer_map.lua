-- The map, if it is newer than what the caller has.
-- KEYS: map
-- ARGV: epoch, version
-- Returns: the blob; nil if there is none or none newer. A blob without a readable head is returned:
--          the caller says what is wrong with it.
local epoch, version = parse_head(redis.call('GETRANGE', KEYS[1], 0, 63))
local known_epoch, known_version = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch and (epoch < known_epoch or (epoch == known_epoch and version <= known_version)) then
  return false
end
return redis.call('GET', KEYS[1])
