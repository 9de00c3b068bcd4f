-- Store a member and when it was heard of, by this server's clock.
-- KEYS: members, beats
-- ARGV: worker id, the member's value
-- Returns: {'OK'}.
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now[1] .. '.' .. string.format('%06d', now[2]), ARGV[1])
return {'OK'}
