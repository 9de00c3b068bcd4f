-- All members and when each was heard of, in one look.
-- KEYS: members, beats
-- ARGV: none
-- Returns: {{seconds, microseconds} of this server's clock, [id, value, ...], [id, score, ...]}.
return {
  redis.call('TIME'),
  redis.call('HGETALL', KEYS[1]),
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'),
}
