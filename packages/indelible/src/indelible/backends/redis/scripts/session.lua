-- What every script on one session goes on with: the session, and what is wrong with its parts.
local s = load_session(1)
if s.error then return s.error end
if s.life then load_counts(s) end
s.snapshots, s.journal, s.aside = KEYS[5], KEYS[6], KEYS[7]

local function damaged(what)
  return redis.error_reply('DAMAGED ' .. what)
end

local function load_view(s)
  s.view = call('HMGET', s.view_key, unpack(VIEW_FIELDS))
  return s.view
end

-- What is wrong with what its entries are found by, or nil.
local function wrong_entries()
  local view = load_view(s)
  if not view[1] then return 'its view is missing' end
  for n = 2, 7 do
    if not view[n] then return 'a part of its view is missing' end
  end
  if view[7] ~= sum_of_view(s) then return 'its view does not match its checksum' end
  if s.stop > s.born and call('EXISTS', s.log) == 0 then return 'its log is missing' end
  if #call('XRANGE', s.log, whole(s.stop) .. '-1', '+', 'COUNT', 1) > 0 then
    return 'its head is older than its log'
  end
end

local PARTS = {'keys of its callers are missing', 'snapshots are missing',
  'lines of its journal are missing', 'its quarantine is missing'}

local function count_part(n)
  return call('HLEN', KEYS[3 + n])
end

-- What is wrong with the hashes from this one to that one, or nil.
local function wrong_parts(from, to)
  for n = from, to do
    if count_part(n) ~= s.counts[n] then return PARTS[n] end
  end
end

local function count_parts()
  for n = 1, 4 do s.counts[n] = count_part(n) end
end

-- What was found to be damaged while values were read. A script that reads some returns it before it
-- writes anything.
local broken

local function read_value(name, value, what)
  if not value then return false end
  local text = unseal(s, name, value)
  if not text then broken = damaged(what .. ' does not match its checksum') end
  return text or ''
end

local function read_snapshot(id)
  return read_value('s' .. id, call('HGET', s.snapshots, id), 'a snapshot')
end

-- The change with this key: its line, and the key of what undid it.
local function read_change(key)
  local what = 'a line of its journal'
  return read_value('o' .. key, call('HGET', s.journal, 'o' .. key), what),
    read_value('u' .. key, call('HGET', s.journal, 'u' .. key), what)
end

-- The changes of the view, newest first: key, line and what undid it of each. With `limit`, those that
-- changed nothing are left out.
local function read_changes(limit)
  local changes = {}
  for number = s.lines, 1, -1 do
    if #changes == 3 * (limit or -1) then break end
    local key = call('HGET', s.journal, '#' .. number)
    if key then
      local line, undone_by = read_change(key)
      if not broken and (not line or string.match(line, '^%d+') ~= whole(number)) then
        broken = damaged('lines of its journal are missing')
      end
      if broken then return changes end
      local before, after = string.match(line, '^[^|]*|([^|]*)|([^|]*)')
      if not limit or before ~= after then
        local n = #changes
        changes[n + 1], changes[n + 2], changes[n + 3] = key, line, undone_by
      end
    end
  end
  return changes
end

local function read_snapshots()
  local records = call('HGETALL', s.snapshots)
  for n = 1, #records, 2 do
    records[n + 1] = read_value('s' .. records[n], records[n + 1], 'a snapshot')
  end
  return records
end

-- The position of an entry of the log, by its id.
local function position_of(id)
  local number = string.match(id, '^(%d+)%-0$')
  if not number then
    broken = damaged('its log holds an entry that was not written by a store')
    number = string.match(id, '^%d+')
  end
  return tonumber(number) - 1
end

local function describe()
  if s.life and not s.view then load_view(s) end
  local view = s.view or {}
  return {whole(now), s.life or false, whole(s.born), whole(s.stop), s.gen, s.deadline,
    s.staged and '1' or '0', view[1] or false, view[2] or false, view[3] or false,
    view[4] or false, view[5] or false, view[6] or false}
end

-- WAIT answers for what its connection wrote last: a retry that finds its work done must write, too.
local function touch(wanted)
  if wanted == '1' then call('HINCRBY', s.head, 'touched', 1) end
end
