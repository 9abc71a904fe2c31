"""The atomic steps, as Lua scripts that run inside of Redis. Both sides use them; each says what it promises.

Scripts run alone, and their writes reach the append-only file as one unit: all or nothing, also across a
crash.
"""

# KEYS: idempotency key, log. ARGV: payload, digest of the payload, seconds until the key is forgotten.
# -> {id, 0} appended, {id, 1} replayed, {id, 2} the key came with another payload before.
APPEND_ONCE = """
local known = redis.call('GET', KEYS[1])
if known then
  local digest, id = string.match(known, '^(%S+) (%S+)$')
  if digest == ARGV[2] then return {id, 1} end
  return {id, 2}
end
local id = redis.call('XADD', KEYS[2], '*', 'tx', ARGV[1])
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. id, 'EX', ARGV[3])
return {id, 0}
"""

# KEYS: log, cancels. ARGV: after this id, most entries, most bytes.
# -> {entries as XRANGE gives them, the first one whatever its size; ids that are to be cancelled}.
READ_GROUP = """
local entries, bytes, last = {}, 0, ARGV[1]
for i = 1, tonumber(ARGV[2]) do
  local got = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)
  if #got == 0 then break end
  for _, text in ipairs(got[1][2]) do bytes = bytes + #text end
  if i > 1 and bytes > tonumber(ARGV[3]) then break end
  entries[i] = got[1]
  last = got[1][1]
end
return {entries, redis.call('SMEMBERS', KEYS[2])}
"""

# The engine begins an epoch. KEYS: generation, begun. ARGV: generation, then fields and values.
# Not for the append-only file and so not for the disk: an epoch must not wait for that. The server remembers it when
# the engine ends; ATTEND makes it durable where the epoch lasts.
BEGIN = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.replicate_commands()
redis.set_repl(redis.REPL_NONE)
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
return 1
"""

# The epoch lasts. KEYS: generation, begun, cancels. ARGV: generation, its first transaction, what is new about it, then
# fields and values as for BEGIN, which are written where they are new and the epoch is still the one that was begun.
# -> the ids that are to be cancelled.
ATTEND = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {} end
local first, kept = unpack(redis.call('HMGET', KEYS[2], 'first', 'kept'))
if (first == ARGV[2] or not first) and kept ~= ARGV[3] then
  redis.call('HSET', KEYS[2], 'kept', ARGV[3], unpack(ARGV, 4))
end
return redis.call('SMEMBERS', KEYS[3])
"""

# The engine ends in order in the middle of an epoch, which is no fault. KEYS: generation, begun. ARGV: generation.
LEAVE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[2], 'first', 'last')
return 1
"""

# The engine met a fault. KEYS: generation, status. ARGV: generation, how many transactions it refused, the fault.
NOTE_FAULT = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HINCRBY', KEYS[2], 'faults', ARGV[2])
redis.call('HSET', KEYS[2], 'fault', ARGV[3])
return 1
"""

# KEYS: lease, generation. ARGV: owner, milliseconds, a holder known to be dead (or empty).
# -> {1, generation} taken, {0, holder} another one has it.
TAKE_LEASE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[3] and holder ~= ARGV[1] then return {0, holder} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, redis.call('INCR', KEYS[2])}
"""

# KEYS: lease, generation, status. ARGV: owner, generation, milliseconds, then status fields and values.
# -> 1 renewed, 0 another engine has taken it since.
RENEW_LEASE = """
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
if tonumber(ARGV[3]) > 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
else
  redis.call('DEL', KEYS[1])
end
if #ARGV > 3 then redis.call('HSET', KEYS[3], unpack(ARGV, 4)) end
return 1
"""

# Objects that a publication will confirm. ARGV: seconds until they go if it does not, then key, value ...
# Never over an object that exists: it may be a published one, which must not expire. One that was sent ahead before
# gets the full time again.
# One command for many objects: with `appendfsync always` the server syncs its disk once, not for each of
# them.
STAGE = """
for i = 2, #ARGV, 2 do
  if not redis.call('SET', ARGV[i], ARGV[i + 1], 'NX', 'EX', ARGV[1]) and redis.call('TTL', ARGV[i]) >= 0 then
    redis.call('EXPIRE', ARGV[i], ARGV[1])
  end
end
"""

PORTION_BYTES = 4 << 20
"""About so much is sent ahead at a time, so that no single command grows with the epoch."""
STAGED_SECONDS = 6 * 3600
"""What is sent ahead and never confirmed is gone after this time; a publication must not take longer."""

# Whether an entry is in the log, without moving its content. KEYS: log. ARGV: id. -> 0 or 1.
IN_LOG = "return #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1], 'COUNT', 1)"

# Outcomes, newest first, without their bodies, which may be large. KEYS: results. ARGV: newest id, oldest id, most.
# -> {id, status, meta (empty where an older version wrote none)} ...
LIST_RESULTS = """
local found = redis.call('XREVRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
for i, entry in ipairs(found) do
  local fields = {}
  for j = 1, #entry[2], 2 do fields[entry[2][j]] = entry[2][j + 1] end
  found[i] = {entry[1], fields['status'], fields['meta'] or ''}
end
return found
"""

# KEYS: subscriptions, acknowledged, holding. ARGV: name, limit, time, filter, epoch, most subscriptions.
# -> 1 made, 0 it was there and has the new limit, 2 it is there with another filter, 3 there are too many.
SUBSCRIBE = """
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then
  local created, filter = string.match(known, '^%S+ (%S+) (.*)$')
  if filter ~= ARGV[4] then return 2 end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. created .. ' ' .. filter)
  return 0
end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then return 3 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1])
return 1
"""

# KEYS: subscriptions, acknowledged, holding. ARGV: name, epoch. -> the position, -1 there is no such subscription.
ACKNOWLEDGE = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local position = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]))
if tonumber(ARGV[2]) <= position then return position end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
return tonumber(ARGV[2])
"""

# The subscription that holds the oldest epoch. KEYS: holding, subscriptions. -> nothing, or {name, epoch, limit}.
_LOWEST = """
local lowest = redis.call('ZRANGE', KEYS[%d], 0, 0, 'WITHSCORES')
if #lowest == 2 then
  local known = redis.call('HGET', KEYS[%d], lowest[1])
  lowest[3] = known and string.match(known, '^%%S+') or '0'
end
"""
LOWEST = _LOWEST % (1, 2) + "return lowest"

# One publication. KEYS: generation, head, results, epochs, published, log, lease, holding, subscriptions.
# ARGV: generation, owner, lease ms, expected epoch, expected last id, epoch (or empty), last id, processed,
#       time, incarnation, summary, kept results, kept epochs, log entries before this id go,
# number of staged keys, keys ..., number of pairs, key, value ..., number of outcomes, id, status, body, meta ...,
# number of dead keys, keys ..., number of subscriptions that hold no more, name, the epoch that they held ...
# -> {'ok', and what LOWEST gives}, 'done' (it was published before), 'fenced', 'stale' (the head is
# another one), 'missing' (staged keys).
PUBLISH = (
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'fenced' end
local head = redis.call('HMGET', KEYS[2], 'epoch', 'last_id', 'incarnation')
local epoch, last = head[1] or '', head[2] or ''
if last == ARGV[7] and (ARGV[6] == '' or epoch == ARGV[6]) and head[3] == ARGV[10] then return 'done' end
if epoch ~= ARGV[4] or last ~= ARGV[5] or (head[3] and head[3] ~= ARGV[10]) then return 'stale' end
local at = 15
local function section(width)
  local first, count = at + 1, tonumber(ARGV[at])
  at = first + count * width
  return first, at - 1
end
local first, final = section(1)
for i = first, final do
  if redis.call('EXISTS', ARGV[i]) == 0 then return 'missing' end
end
for i = first, final do redis.call('PERSIST', ARGV[i]) end
first, final = section(2)
for i = first, final, 2 do redis.call('SET', ARGV[i], ARGV[i + 1]) end
first, final = section(4)
for i = first, final, 4 do
  redis.call('XADD', KEYS[3], ARGV[i], 'status', ARGV[i + 1], 'body', ARGV[i + 2], 'meta', ARGV[i + 3])
end
if final >= first then redis.call('XTRIM', KEYS[3], 'MAXLEN', ARGV[12]) end
first, final = section(1)
for i = first, final do redis.call('UNLINK', ARGV[i]) end
first, final = section(2)
for i = first, final, 2 do
  if tonumber(redis.call('ZSCORE', KEYS[8], ARGV[i]) or -1) == tonumber(ARGV[i + 1]) then
    redis.call('ZREM', KEYS[8], ARGV[i])
  end
end
if ARGV[6] ~= '' then
  epoch = ARGV[6]
  redis.call('XADD', KEYS[4], 'MAXLEN', ARGV[13], epoch .. '-1', 'summary', ARGV[11])
  redis.call('HSET', KEYS[2], 'epoch_time', ARGV[9])
end
redis.call('HSET', KEYS[2], 'epoch', epoch, 'last_id', ARGV[7], 'incarnation', ARGV[10])
redis.call('HINCRBY', KEYS[2], 'processed', ARGV[8])
redis.call('XADD', KEYS[5], 'MAXLEN', '~', '1000', '*', 'epoch', epoch, 'last_id', ARGV[7])
if ARGV[14] ~= '' then redis.call('XTRIM', KEYS[6], 'MINID', ARGV[14]) end
redis.call('SET', KEYS[7], ARGV[2], 'PX', ARGV[3])
"""
    + _LOWEST % (8, 9)
    + """
return {'ok', unpack(lowest)}
"""
)
