-- Appends of many callers at once, each as append_plain would do it: to the sessions that are
-- active and need no other end. Answers for each with its version, or with 0 if nothing was written.
-- KEYS: head, log and view of each session. ARGV: margin; then for each session how many appends it
-- has, and key, meta, envelope and ttl ('' for none) of each.
local call, pcall = redis.call, redis.pcall
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local margin, at, answers = ARGV[1], 2, {}
for n = 1, #KEYS, 3 do
  local log = KEYS[n + 1]
  local head = pcall('HMGET', KEYS[n], 'end', 'gen', 'deadline', 'staged', 'life', 'until')
  local usable = head[4] == '0' and call('EXISTS', KEYS[n + 2]) == 1
  local stop, gen, deadline, life = head[1], head[2], head[3], head[5]
  local added
  for place = at + 1, at + 4 * ARGV[at], 4 do
    local ttl, ends, fits = ARGV[place + 3], deadline, usable and stop + 1 <= LOG_MAX
    if fits and ttl == '' then
      fits = deadline == ''
    elseif fits then
      fits = deadline ~= '' and now < tonumber(deadline)
      if fits then
        ends = now + ttl
        local ahead = head[6] - ends - margin
        fits = ahead >= 0 and ahead <= math.min(ttl / SLACK_SHARE, SLACK_MS)
      end
    end
    -- The entry first: a refusal comes with the first write, and then nothing was changed.
    if fits and type(pcall('XADD', log, 'NOMKSTREAM', (stop + 1) .. '-0',
      't', now .. ' ' .. ends .. ' ' .. gen, 'm', ARGV[place + 1], 'k', ARGV[place],
      'e', ARGV[place + 2])) == 'string' then
      stop, deadline, added = stop + 1, ends, true
      answers[#answers + 1] = life .. '.' .. stop .. '.' .. gen
    else
      answers[#answers + 1] = 0
    end
  end
  at = at + 1 + 4 * ARGV[at]
  if added and deadline == '' then
    call('HSET', KEYS[n], 'end', stop)
  elseif added then
    call('HSET', KEYS[n], 'end', stop, 'deadline', deadline)
  end
end
return answers
