-- Follows the prelude in every script on one session: loads it, and functions that check its parts.
local s = load_session(1)
if s.error then return s.error end
if s.life then load_counts(s) end
s.snapshots, s.journal, s.quarantine = KEYS[5], KEYS[6], KEYS[7]

local function build_error(what)
  return redis.error_reply('DAMAGED ' .. what)
end

local function count_parts()
  for n = 1, 5 do s.counts[n] = count_part(s, n) end
end

-- The error for a damaged value that was read, which scripts return before they write anything.
local broken

local function read_value(name, value, what)
  if not value then return false end
  local text = unseal(s, name, value)
  if not text then broken = build_error(what .. ' does not match its checksum') end
  return text or ''
end

local function read_snapshot(id)
  return read_value('s' .. id, call('HGET', s.snapshots, id), 'a snapshot')
end

-- Return the line of the change with this key, and the key of what undid it.
local function read_change(key)
  local what, found = 'a line of its journal', call('HMGET', s.journal, 'o' .. key, 'u' .. key)
  return read_value('o' .. key, found[1], what), read_value('u' .. key, found[2], what)
end

-- WAIT concerns the last write of its connection, so a call that finds its work done must write, too.
local function touch(lookup)
  if lookup == 'touch' then call('HINCRBY', s.head, 'touched', 1) end
end
