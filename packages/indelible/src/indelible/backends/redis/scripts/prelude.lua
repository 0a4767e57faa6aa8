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
local found = redis.pcall('HMGET', HEAD, unpack(HEAD_FIELDS))
if found.err then return found end
-- The words of its state, in the order of STATE_FIELDS in keys.py.
local words = {string.match(found[1] or '', STATE)}
-- False, not nil, if there is none: a reply ends at a nil.
local life, born, gen = words[1] or false, tonumber(words[2] or 0), tonumber(words[3] or 0)
local staged = words[4] == '1'
-- When the engine frees the keys: at the deadline, and some time after it.
local ends = tonumber(words[5] or '')
-- How many lines the journal has had, and how many snapshots were taken.
local lines, snaps = tonumber(words[6] or 0), tonumber(words[7] or 0)
local stop, deadline = tonumber(found[2] or 0), found[3] or ''
-- The values of VIEW_FIELDS, once they were looked at.
local view

-- Write the head. It counts the fields of the other hashes, so that one that is lost is missed.
local function save_head()
  local state = table.concat({life, whole(born), whole(gen), staged and '1' or '0',
    ends and whole(ends) or '', whole(lines), whole(snaps), call('HLEN', USED), call('HLEN', SNAPS),
    call('HLEN', LINES), call('HLEN', ASIDE)}, ' ')
  call('HSET', HEAD, 'state', state, 'end', whole(stop), 'deadline', deadline,
    'sum', whole(sum_of_head(HEAD, state, stop, deadline)))
end

local function load_view()
  view = call('HMGET', VIEW, unpack(VIEW_FIELDS))
end

-- Write the view's fields that changed, and its checksum; it is bound to the generation.
local function save_view(changed)
  local fields = {'sum', sum_of_view(VIEW, life, whole(gen), view)}
  for _, n in ipairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = VIEW_FIELDS[n], view[n]
  end
  call('HSET', VIEW, unpack(fields))
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
  call('HSET', HEAD, 'touched', 0)
  call('HDEL', HEAD, 'keyed')
  call('PERSIST', HEAD)
  call('UNLINK', VIEW, LOG, USED, SNAPS, LINES, ASIDE)
  view = {whole(born), '', whole(now), '{}', forked or '', '0'}
  save_view({1, 2, 3, 4, 5, 6})
  if deadline ~= '' and not as_stage then expire_all() end
  save_head()
end

local function describe()
  if life and not view then load_view() end
  local shown = view or {}
  return {whole(now), life, whole(born), whole(stop), whole(gen), deadline, staged and '1' or '0',
    shown[1] or false, shown[2] or false, shown[3] or false, shown[4] or false, shown[5] or false,
    shown[6] or false}
end

-- For WAIT: it answers for what its connection wrote last, so a retry that finds its work done
-- must write something too.
local function touch()
  call('HINCRBY', HEAD, 'touched', 1)
end
