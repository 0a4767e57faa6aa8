-- The beginning of every script: the time, checksums, and a session as a table. KEYS has the eight parts of each
-- session, in the order of keys.py; for a single session, its audit follows. ARGV begins with the caller's time ('' for
-- the server's time; only tests have their own) and how long after the deadline the server frees keys.
-- A script creates its functions in every call, so there are few here.
local call = redis.call
-- Whether the session was changed.
local changed = false
local now, margin = tonumber(ARGV[1]), ARGV[2]
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Format a number in full. Lua writes numbers of up to 14 digits so by itself.
local function whole(number)
  return string.format('%.0f', number)
end

-- 48 bits of SHA-1, as sessions.py computes them. fakeredis does not have the function, so it has no checksums.
local function digest(text)
  return redis.sha1hex and string.sub(redis.sha1hex(text), 1, 12) or '000000000000'
end

-- Load the session whose keys begin at KEYS[first]. `error` is the error if the server refused; `wrong` says what is
-- wrong with its head. Calls that the server may refuse are protected and come before any write, so that the error
-- begins with its code: older servers put other text before the code of an unprotected call.
local function load_session(first)
  local head = KEYS[first]
  local found = redis.pcall('HMGET', head, 'state', 'end', 'deadline', 'activity', 'sum')
  local state, stop, deadline, activity = found[1], tonumber(found[2]), found[3], tonumber(found[4])
  local life, born, gen, staged, ends, created, summed, wrong
  if found.err then
    state = nil
  elseif not state then
    -- The server frees the head long after the other keys, so expiry never leaves a part without its head.
    if call('EXISTS', unpack(KEYS, first + 1, first + 7)) > 0 then wrong = 'its head is missing' end
  else
    local until_ms = deadline == '' and 0 or tonumber(deadline)
    summed = tonumber(digest(head .. '\n' .. state), 16)
    if stop and until_ms and activity and tonumber(found[5]) == summed + stop + until_ms + activity then
      life, born, gen, staged, ends, created = string.match(state, '^(%d+) (%d+) (%d+) (%d) (%d*) (%d+) ')
    else
      wrong = 'its head does not match its checksum'
    end
  end
  if not life then stop, deadline = 0, '' end
  -- In one constructor, so that the table need not grow. `ends` is when the server frees the keys.
  return {
    first = first, head = head, view_key = KEYS[first + 1], log = KEYS[first + 2],
    used = KEYS[first + 3], items = KEYS[first + 7], state = state, digest = summed,
    error = found.err and found, wrong = wrong, life = life, born = tonumber(born) or 0, stop = stop,
    gen = gen or '0', deadline = deadline, ends = tonumber(ends), created = tonumber(created),
    activity = life and activity, staged = staged == '1',
    active = life and staged == '0' and (deadline == '' or now < tonumber(deadline)),
  }
end

local function format_version(s)
  if not s.life or s.staged then return 'new' end
  local version = s.life .. '.' .. s.stop .. '.' .. s.gen
  if s.active then return version end
  return now < s.deadline + KNOWN_MS and version .. '!' or 'new'
end

-- Write the head. It says how many fields each other hash has, and how many members the index of items has, so that
-- lost ones are noticed.
local function save_head(s)
  changed = true
  if s.counts then
    s.state = table.concat({s.life, s.born, s.gen, s.staged and '1' or '0', s.ends and whole(s.ends) or '',
      whole(s.created), s.lines, s.taken, unpack(s.counts)}, ' ')
    s.digest = tonumber(digest(s.head .. '\n' .. s.state), 16)
    call('HSET', s.head, 'state', s.state)
  end
  call('HSET', s.head, 'end', s.stop, 'deadline', s.deadline, 'activity', whole(s.activity),
    'sum', whole(s.digest + s.stop + (s.deadline == '' and 0 or s.deadline) + s.activity))
end
