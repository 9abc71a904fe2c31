"""The atomic steps of bulk jobs, as Lua scripts that run inside of Redis (see scripts.py).

A job is a hash. `status` goes queued -> running -> succeeded, failed or cancelled, and back from running to queued when
the engine that ran it has ended. `owner` is the lease of the engine that runs it: writes of an engine after another one
has taken over are refused here. `revision` grows with every change.
"""

# KEYS: key of the Idempotency-Key, job, jobs, queue. ARGV: digest, seconds until the key is forgotten, id, time, then
# fields and values. -> {id, 0} submitted, {id, 1} replayed, {id, 2} the key came with another request before.
SUBMIT = """
local known = redis.call('GET', KEYS[1])
if known then
  local digest, id = string.match(known, '^(%S+) (%S+)$')
  if digest == ARGV[1] then return {id, 1} end
  return {id, 2}
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[3], 'EX', ARGV[2])
redis.call('HSET', KEYS[2], 'status', 'queued', 'created', ARGV[4], 'revision', 1, unpack(ARGV, 5))
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[3])
redis.call('RPUSH', KEYS[4], ARGV[3])
return {ARGV[3], 0}
"""

# Everything that an earlier engine had taken goes back to the head of the queue, in its order. KEYS: queue, running.
REQUEUE = """
local taken = redis.call('LRANGE', KEYS[2], 0, -1)
for i = #taken, 1, -1 do redis.call('LPUSH', KEYS[1], taken[i]) end
redis.call('DEL', KEYS[2])
return #taken
"""

# KEYS: job, running. ARGV: owner, time, id. -> 1, or 0: it is not to be run.
# `attempts` counts the engines that took it.
CLAIM = """
local status = redis.call('HGET', KEYS[1], 'status')
if status ~= 'queued' and status ~= 'running' then
  redis.call('LREM', KEYS[2], 0, ARGV[3])
  return 0
end
redis.call('HSETNX', KEYS[1], 'started', ARGV[2])
-- The same engine may take a job again when Redis was away; that is no further attempt.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then redis.call('HINCRBY', KEYS[1], 'attempts', 1) end
redis.call('HSET', KEYS[1], 'status', 'running', 'owner', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'revision', 1)
return 1
"""

# KEYS: job. ARGV: owner, then fields and values. -> 0 it is another engine's, 1 written, 2 the same and it is to stop.
UPDATE = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
if #ARGV > 1 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 2))
  redis.call('HINCRBY', KEYS[1], 'revision', 1)
end
if redis.call('HGET', KEYS[1], 'cancel') then return 2 end
return 1
"""

# The import's transaction into the log, once. KEYS: job, log, batches. ARGV: owner, payload, import.
# -> {0} it is another engine's, {2} it is to stop, {1, transaction id}.
APPEND = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return {0} end
local known = redis.call('HGET', KEYS[1], 'transaction')
if known then return {1, known} end
if redis.call('HGET', KEYS[1], 'cancel') then return {2} end
local id = redis.call('XADD', KEYS[2], '*', 'tx', ARGV[2])
redis.call('HSET', KEYS[1], 'transaction', id)
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HSET', KEYS[3], ARGV[3], id)
return {1, id}
"""

# KEYS: job, running, jobs. ARGV: owner, id, most jobs that are kept, prefix of the jobs' keys, then fields and values.
# -> 0 it is another engine's, else 1. Old jobs that have ended go.
FINISH = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('LREM', KEYS[2], 0, ARGV[2])
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1 - tonumber(ARGV[3]))) do
  local status = redis.call('HGET', ARGV[4] .. id, 'status')
  if status ~= 'queued' and status ~= 'running' then
    redis.call('DEL', ARGV[4] .. id)
    redis.call('ZREM', KEYS[3], id)
  end
end
return 1
"""

# KEYS: job, queue. ARGV: id, time. -> the status it has now; 'cancelling' for one that runs; '' for none;
# 'applying' where its transaction is in the log.
CANCEL = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return '' end
if status == 'queued' then
  redis.call('LREM', KEYS[2], 0, ARGV[1])
  redis.call('HSET', KEYS[1], 'status', 'cancelled', 'finished', ARGV[2], 'cancel', 1)
  redis.call('HINCRBY', KEYS[1], 'revision', 1)
  return 'cancelled now'
end
if status ~= 'running' then return status end
if redis.call('HGET', KEYS[1], 'transaction') then return 'applying' end
redis.call('HSET', KEYS[1], 'cancel', 1)
redis.call('HINCRBY', KEYS[1], 'revision', 1)
return 'cancelling'
"""
