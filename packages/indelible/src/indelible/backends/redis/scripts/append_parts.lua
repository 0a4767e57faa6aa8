-- Functions of an append for keys of callers and for items. Needs the prelude and changes.lua. A session's table
-- collects what is written at the end: `keys` has the first position of the append with each key, `members` scores
-- and members of the index of items, `newest` the newest position of each item.

-- Whether no append with this key was written, or is about to be.
local function is_unused(s, key)
  if s.keys and s.keys[key] or redis.pcall('HLEN', s.used) ~= load_counts(s)[1] then return false end
  local used, wrong = find_key(s, key)
  return not used and not wrong
end

-- Note the key of an append that begins at the end of the log.
local function add_key(s, key)
  s.keys = s.keys or {}
  s.keys[key] = s.stop
end

local function write_keys(s)
  local counts = load_counts(s)
  for key, first in pairs(s.keys) do
    if is_indexed(key) then
      counts[1] = counts[1] + call('HSET', s.used, key, seal(s, 'k' .. key, first))
    end
  end
  expire_one(s, s.used)
end

-- Whether the index of items has all its members.
local function has_index(s)
  return redis.pcall('ZCARD', s.items) == load_counts(s)[5]
end

-- Whether the newest visible entry of an item is at this position ('' for none), including entries that are
-- about to be written.
local function is_newest(s, item, place)
  if s.newest and s.newest[item] then return s.newest[item] == tonumber(place) end
  if not s.view and load_view(s) then
    s.view = nil
    return false
  end
  local position, wrong = find_newest(s, item)
  return not wrong and position == tonumber(place)
end

local function add_member(s, row, position)
  local member = index_row(row, position)
  if not member then return end
  s.members, s.newest = s.members or {}, s.newest or {}
  s.members[#s.members + 1], s.members[#s.members + 2] = 0, member
  s.newest[string.sub(member, 1, -12)] = position
end

local function write_members(s)
  local counts, members = load_counts(s), s.members
  for at = 1, #members, PUSHED do
    call('ZADD', s.items, unpack(members, at, math.min(at + PUSHED - 1, #members)))
  end
  counts[5] = counts[5] + #members / 2
  expire_one(s, s.items)
end

-- Return the state that decides about an append whose guard did not hold: the session, the append with its key, and
-- the position of the newest visible entry of its item; or what is damaged, behind '-'.
local function explain(s, key, lookup, indexed, item)
  local used, newest, wrong = false, false, s.wrong
  if s.active and not wrong then
    load_counts(s)
    -- If rows are about to be written, the log was checked before.
    if s.rows then wrong = load_view(s) else wrong = find_wrong_entries(s) end
    if not wrong and lookup ~= '' then wrong = find_wrong_parts(s, 1, 1) end
    if not wrong and lookup ~= '' then used, wrong = find_key(s, key) end
    if not wrong and not used and indexed == '1' then wrong = find_wrong_parts(s, 5, 5) end
    if not wrong and not used and item ~= '' then
      newest = s.newest and s.newest[item]
      if not newest then newest, wrong = find_newest(s, item) end
    end
    -- WAIT concerns the last write of its connection, so a retry that finds the first attempt must write, too.
    if used and lookup == 'touch' then call('HINCRBY', s.head, 'touched', 1) end
  end
  if wrong then return '-DAMAGED ' .. wrong end
  return {describe(s), used or false, newest or false}
end
