-- What every script but the append begins with: where the session stands, and what time it is.
-- KEYS are those of one session, in the order of keys.py; ARGV begins with the time and the margin.
local HEAD, VIEW, LOG, USED, SNAPS, LINES, ASIDE =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local call = redis.call

-- The caller's clock if it brought one, which only tests do; else the server's own.
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local margin = tonumber(ARGV[2])

local function whole(number)
  return string.format('%.0f', number)
end

-- In a protected call, so that a refusal keeps its code, which older servers bury in text.
local found = redis.pcall('HMGET', HEAD, 'life', 'born', 'end', 'gen', 'deadline', 'staged', 'until',
  'lines', 'snaps', 'keys', 'snapshots', 'journal', 'aside')
if found.err then return found end
local life, born, stop = found[1], tonumber(found[2] or 0), tonumber(found[3] or 0)
local gen, deadline, staged = tonumber(found[4] or 0), found[5] or '', found[6] == '1'
-- When the engine frees the keys: at the deadline, and some time after it.
local ends = tonumber(found[7] or '')
-- How many lines the journal has had, and how many snapshots were taken.
local lines, snaps = tonumber(found[8] or 0), tonumber(found[9] or 0)

-- Write the head. It counts the fields of the other hashes, so that one that is lost is missed.
local function save_head()
  call('HSET', HEAD, 'life', life, 'born', whole(born), 'end', whole(stop), 'gen', whole(gen),
    'deadline', deadline, 'staged', staged and '1' or '0', 'until', ends and whole(ends) or '',
    'lines', whole(lines), 'snaps', whole(snaps), 'keys', call('HLEN', USED),
    'snapshots', call('HLEN', SNAPS), 'journal', call('HLEN', LINES), 'aside', call('HLEN', ASIDE))
end

local function damaged(what)
  return redis.error_reply('DAMAGED ' .. what)
end

local function active()
  return life and not staged and (deadline == '' or now < tonumber(deadline))
end

local function version()
  if not life or staged then return 'new' end
  local token = string.format('%s.%.0f.%.0f', life, stop, gen)
  if active() then return token end
  if now < tonumber(deadline) + KNOWN_MS then return token .. '!' end
  return 'new'
end

-- All keys of the session run out together; what says that it expired outlives them. Whoever calls
-- this saves the head afterwards.
local function expire_all()
  local parts = {VIEW, LOG, USED, SNAPS, LINES, ASIDE}
  if deadline == '' then
    ends = nil
    for _, key in ipairs(parts) do call('PERSIST', key) end
    call('PERSIST', HEAD)
  else
    -- The engine frees what the scripts have taken for expired already: it must not come first.
    ends = tonumber(deadline) + margin
    for _, key in ipairs(parts) do call('PEXPIRE', key, ends - now) end
    call('PEXPIRE', HEAD, ends - now + KNOWN_MS)
  end
end

-- A key that was just written runs out with the others.
local function expire_one(key)
  if ends then call('PEXPIRE', key, ends - now) end
end

local function begin(ttl, first, forked, as_stage)
  local t = call('TIME')
  life = string.format('%.0f', t[1] * 1000000 + t[2])
  born = first or stop
  stop = born
  gen, lines, snaps = 0, 0, 0
  deadline = ttl == '' and '' or whole(now + tonumber(ttl))
  ends = nil
  staged = as_stage
  -- First what a full server refuses: then nothing was changed.
  call('HSET', HEAD, 'life', life)
  call('HDEL', HEAD, 'touched', 'keyed')
  call('PERSIST', HEAD)
  call('UNLINK', VIEW, LOG, USED, SNAPS, LINES, ASIDE)
  call('HSET', VIEW, 'tail', whole(born), 'extents', '', 'created', whole(now),
    'metadata', '{}', 'forked', forked or '', 'vacuums', 0)
  if deadline ~= '' and not as_stage then expire_all() end
  save_head()
end

local function describe()
  local view = {}
  if life then
    view = call('HMGET', VIEW, 'tail', 'extents', 'created', 'metadata', 'forked', 'vacuums')
  end
  return {string.format('%.0f', now), life, string.format('%.0f', born),
    string.format('%.0f', stop), string.format('%.0f', gen), deadline, staged and '1' or '0',
    view[1] or false, view[2] or false, view[3] or false, view[4] or false, view[5] or false,
    view[6] or false}
end

-- For WAIT: it answers for what its connection wrote last, so a retry that finds its work done
-- must write something too.
local function touch()
  call('HINCRBY', HEAD, 'touched', 1)
end
