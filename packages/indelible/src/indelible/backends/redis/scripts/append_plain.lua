-- One entry with a made key, onto a session that is active and whose keys need no other end: most
-- appends are this. Answers with the version, or with 0 if the session is otherwise; then nothing
-- was written. KEYS: head, log, view. ARGV: key, meta, envelope and checksum, to which its place is
-- added here; and ttl and margin if it has one.
local call, format = redis.call, string.format
local head = redis.pcall('HMGET', KEYS[1], 'state', 'end', 'deadline', 'sum')
if not head_is_sound(KEYS[1], head) or call('EXISTS', KEYS[3]) == 0 then return 0 end
local life, gen, ends = string.match(head[1], '^(%d+) %d+ (%d+) 0 (%d*)')
local stop, deadline, ttl = head[2] + 1, head[3], ARGV[5]
if not life then return 0 end
if stop > LOG_MAX then return 0 end
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local sum, later = head[4] + 1, 0
if not ttl then
  if deadline ~= '' then return 0 end
else
  if deadline == '' or now >= tonumber(deadline) then return 0 end
  later = now + ttl
  sum = sum + later - deadline
  deadline = later
  local ahead = ends - deadline - ARGV[6]
  if ahead < 0 or ahead > math.min(ttl / SLACK_SHARE, SLACK_MS) then return 0 end
end
-- The entry first: a refusal comes with the first write, and then nothing was changed. A log that the
-- server dropped is not made anew: the long way says what is wrong.
local place = format('%.0f', ARGV[4] + stop - 1 + now + later + gen)
local added = redis.pcall('XADD', KEYS[2], 'NOMKSTREAM', stop .. '-0',
  't', now .. ' ' .. deadline .. ' ' .. gen .. ' ' .. place, 'm', ARGV[2], 'k', ARGV[1],
  'e', ARGV[3])
if type(added) ~= 'string' then return 0 end
if ttl then
  call('HSET', KEYS[1], 'end', stop, 'deadline', deadline, 'sum', format('%.0f', sum))
else
  call('HSET', KEYS[1], 'end', stop, 'sum', format('%.0f', sum))
end
return life .. '.' .. stop .. '.' .. gen
