-- One entry with a made key, onto a session that is active and whose keys need no other end: most
-- appends are this. Answers with the version, or with 0 if the session is otherwise; then nothing
-- was written. KEYS: head, log, view. ARGV: key, meta, envelope; and ttl and margin if it has one.
local call = redis.call
local head = redis.pcall('HMGET', KEYS[1], 'end', 'gen', 'deadline', 'staged', 'life', 'until')
if head[4] ~= '0' or call('EXISTS', KEYS[3]) == 0 then return 0 end
local stop, gen, deadline, ttl = head[1] + 1, head[2], head[3], ARGV[4]
if stop > LOG_MAX then return 0 end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if not ttl then
  if deadline ~= '' then return 0 end
else
  if deadline == '' or now >= tonumber(deadline) then return 0 end
  deadline = now + ttl
  local ahead = head[6] - deadline - ARGV[5]
  if ahead < 0 or ahead > math.min(ttl / SLACK_SHARE, SLACK_MS) then return 0 end
end
-- The entry first: a refusal comes with the first write, and then nothing was changed. A log that the
-- server dropped is not made anew: the long way says what is wrong.
local added = redis.pcall('XADD', KEYS[2], 'NOMKSTREAM', stop .. '-0',
  't', now .. ' ' .. deadline .. ' ' .. gen, 'm', ARGV[2], 'k', ARGV[1], 'e', ARGV[3])
if type(added) ~= 'string' then return 0 end
if ttl then
  call('HSET', KEYS[1], 'end', stop, 'deadline', deadline)
else
  call('HSET', KEYS[1], 'end', stop)
end
return head[5] .. '.' .. stop .. '.' .. gen
