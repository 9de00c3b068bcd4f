-- Prepended to every script: how the lease, the epoch and a blob's version are read.
-- Values that cannot be read end the script with an error that starts with "FORMAT".

-- The lease's record as a table with a numeric epoch, or nil if nobody holds it.
local function read_leader(key)
  local raw = redis.call('GET', key)
  if not raw then
    return nil
  end
  local good, record = pcall(cjson.decode, raw)
  if not good or type(record) ~= 'table' or type(record.id) ~= 'string' then
    return nil, redis.error_reply('FORMAT ' .. key .. ': not a lease of ours')
  end
  record.number = tonumber(record.epoch)
  if not record.number then
    return nil, redis.error_reply('FORMAT ' .. key .. ': a lease without an epoch')
  end
  return record
end

-- The last epoch that was given, 0 if none.
local function read_epoch(key)
  local raw = redis.call('GET', key)
  if not raw then
    return 0
  end
  local number = tonumber(raw)
  if not number then
    return nil, redis.error_reply('FORMAT ' .. key .. ': not a number')
  end
  return number
end

-- The first line of a blob ('' if there is none or it is no string): what a client reads a version from.
local function read_head(key)
  local head = redis.pcall('GETRANGE', key, 0, 63)
  if type(head) ~= 'string' then
    return ''
  end
  return head
end

-- Epoch and version of a head, or nil if it is no blob of ours.
local function parse_head(head)
  local epoch, version = string.match(head, '^%d+ (%d+)%.(%d+)\n')
  if not epoch then
    return nil
  end
  return tonumber(epoch), tonumber(version)
end

-- Numbers beyond 14 digits must not go through tostring.
local function digits(number)
  return string.format('%.0f', number)
end

-- The lease as it stands: {record or '', milliseconds left, epoch, head of the map}.
local function standing(leader_key, epoch_key, map_key)
  local record, bad = read_leader(leader_key)
  if bad then
    return bad
  end
  local epoch, wrong = read_epoch(epoch_key)
  if wrong then
    return wrong
  end
  local raw, left = '', 0
  if record then
    raw = redis.call('GET', leader_key)
    left = math.max(0, redis.call('PTTL', leader_key))
    epoch = math.max(epoch, record.number)
  end
  return {raw, left, digits(epoch), read_head(map_key)}
end

-- Whether `id` holds the lease in `epoch`; else what a refusal says: {'REFUSED', why, holder, epoch}.
local function guard(leader_key, epoch_key, id, epoch)
  local record, bad = read_leader(leader_key)
  if bad then
    return false, bad
  end
  if record and record.id == id and record.number == tonumber(epoch) then
    return true
  end
  local last, wrong = read_epoch(epoch_key)
  if wrong then
    return false, wrong
  end
  if record then
    last = math.max(last, record.number)
  end
  local holder = record and record.id or ''
  return false, {'REFUSED', 'the lease is not held', holder, digits(last)}
end

-- Whether `id` may write in `epoch`: as the holder of the lease or, where that is elsewhere
-- (`elsewhere` = '1'), if no higher epoch is stored and nobody else holds the lease here. The epoch
-- of such a writer is stored: from then on a lower one is refused.
local function may_write(leader_key, epoch_key, map_key, id, epoch, elsewhere)
  if elsewhere ~= '1' then
    return guard(leader_key, epoch_key, id, epoch)
  end
  local record, bad = read_leader(leader_key)
  if bad then
    return false, bad
  end
  local last, wrong = read_epoch(epoch_key)
  if wrong then
    return false, wrong
  end
  if record then
    last = math.max(last, record.number)
  end
  local published = parse_head(read_head(map_key))
  if published then
    last = math.max(last, published)
  end
  if record and record.id ~= id then
    return false, {'REFUSED', 'the lease here is held', record.id, digits(last)}
  end
  if last > tonumber(epoch) then
    return false, {'REFUSED', 'a higher epoch is stored', '', digits(last)}
  end
  redis.call('SET', epoch_key, digits(tonumber(epoch)))
  return true
end
