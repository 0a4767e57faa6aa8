-- What every script begins with: the time, checksums, and a session as a table. KEYS holds the seven
-- keys of each session, in the order of keys.py. ARGV begins with the caller's time ('' for the
-- server's own; only tests bring one) and how long after the deadline the engine frees keys.
local call = redis.call
local now, margin = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

-- 48 bits of SHA-1, as sessions.py computes them too. A simulated server lacks the function; it
-- keeps nothing, so that nothing of it is checked.
local function digest(text)
  return redis.sha1hex and string.sub(redis.sha1hex(text), 1, 12) or '000000000000'
end

local function sum_of_head(name, state, stop, deadline)
  return tonumber(digest(name .. '\n' .. state), 16) + stop + (deadline == '' and 0 or deadline)
end

-- The session whose keys begin at KEYS[first]. `error` is what the server refused with; `wrong` is
-- what is wrong with its head. Calls that the server may refuse are protected and come before any
-- write, so that a refusal keeps its code, which older servers bury in text.
local function load_session(first)
  local head = KEYS[first]
  local found = redis.pcall('HMGET', head, 'state', 'end', 'deadline', 'sum')
  local state, stop, deadline, sum = found[1], tonumber(found[2] or ''), found[3], found[4]
  local life, born, gen, staged, ends, wrong
  if not state then
    stop, deadline = 0, ''
    -- The engine frees the other keys at the deadline or later, and the head long after them: no
    -- expiry leaves a part without its head.
    if call('EXISTS', unpack(KEYS, first + 1, first + 6)) > 0 then wrong = 'its head is missing' end
  elseif stop and sum and (deadline == '' or tonumber(deadline or ''))
    and tonumber(sum) == sum_of_head(head, state, stop, deadline) then
    life, born, gen, staged, ends = string.match(state, '^(%d+) (%d+) (%d+) (%d) (%d*) ')
  else
    wrong = 'its head does not match its checksum'
  end
  return {
    error = found.err and found, wrong = wrong, first = first, head = head,
    view_key = KEYS[first + 1], log = KEYS[first + 2], used = KEYS[first + 3],
    state = state, life = life, born = tonumber(born or 0), gen = gen or '0',
    staged = staged == '1', stop = stop, deadline = deadline,
    -- When the engine frees the keys.
    ends = tonumber(ends or ''),
  }
end

local function is_active(s)
  return s.life and not s.staged and (s.deadline == '' or now < tonumber(s.deadline))
end

local function version_of(s)
  if not s.life or s.staged then return 'new' end
  local version = s.life .. '.' .. whole(s.stop) .. '.' .. s.gen
  if is_active(s) then return version end
  return now < s.deadline + KNOWN_MS and version .. '!' or 'new'
end

-- Write the head. It says how many fields each other hash has, so that a lost one is missed.
local function save_head(s)
  if s.counts then
    s.state = table.concat({s.life, whole(s.born), s.gen, s.staged and '1' or '0',
      s.ends and whole(s.ends) or '', s.lines, s.taken, unpack(s.counts)}, ' ')
    call('HSET', s.head, 'state', s.state)
  end
  call('HSET', s.head, 'end', whole(s.stop), 'deadline', s.deadline,
    'sum', whole(sum_of_head(s.head, s.state, s.stop, s.deadline)))
end
