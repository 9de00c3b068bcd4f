-- Look at the lease without changing anything.
-- KEYS: leader, epoch, map
-- ARGV: none
-- Returns: the standing.
return standing(KEYS[1], KEYS[2], KEYS[3])
