-- Appends of many callers at once, each as append_plain would do it: to the sessions that are
-- active and need no other end. Answers for each with its version, or with 0 if nothing was written.
-- KEYS: head, log and view of each session. ARGV: margin; then for each session how many appends it
-- has, and key, meta, envelope, checksum and ttl ('' for none) of each.
local call, pcall, format = redis.call, redis.pcall, string.format
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local margin, at, answers = ARGV[1], 2, {}
for n = 1, #KEYS, 3 do
  local log = KEYS[n + 1]
  local head = pcall('HMGET', KEYS[n], 'state', 'end', 'deadline', 'sum')
  local usable = head_is_sound(KEYS[n], head) and call('EXISTS', KEYS[n + 2]) == 1
  local life, gen, freed_at = string.match(head[1] or '', '^(%d+) %d+ (%d+) 0 (%d*)')
  local stop, deadline = head[2], head[3]
  local added
  for place = at + 1, at + 5 * ARGV[at], 5 do
    local ttl, ends, fits = ARGV[place + 4], deadline, usable and life and stop + 1 <= LOG_MAX
    local later = 0
    if fits and ttl == '' then
      fits = deadline == ''
    elseif fits then
      fits = deadline ~= '' and now < tonumber(deadline)
      if fits then
        ends = now + ttl
        later = ends
        local ahead = freed_at - ends - margin
        fits = ahead >= 0 and ahead <= math.min(ttl / SLACK_SHARE, SLACK_MS)
      end
    end
    -- The entry first: a refusal comes with the first write, and then nothing was changed.
    if fits and type(pcall('XADD', log, 'NOMKSTREAM', (stop + 1) .. '-0',
      't', now .. ' ' .. ends .. ' ' .. gen .. ' '
        .. format('%.0f', ARGV[place + 3] + stop + now + later + gen),
      'm', ARGV[place + 1], 'k', ARGV[place], 'e', ARGV[place + 2])) == 'string' then
      stop, deadline, added = stop + 1, ends, true
      answers[#answers + 1] = life .. '.' .. stop .. '.' .. gen
    else
      answers[#answers + 1] = 0
    end
  end
  at = at + 1 + 5 * ARGV[at]
  if added and deadline == '' then
    call('HSET', KEYS[n], 'end', stop, 'sum', format('%.0f', head[4] + stop - head[2]))
  elseif added then
    call('HSET', KEYS[n], 'end', stop, 'deadline', deadline,
      'sum', format('%.0f', head[4] + stop - head[2] + deadline - head[3]))
  end
end
return answers
