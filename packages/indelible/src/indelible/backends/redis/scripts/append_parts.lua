-- Functions of an append for keys of callers and for items. Needs the prelude and changes.lua. A session's table
-- collects what is written at the end: `keys` has the first position of the append with each key, `members` scores
-- and members of the index of items, `newest` the newest position of each item.

-- Find what decides about an append: the append with its key, and the position of the newest visible entry of its item,
-- including entries that are about to be written. The third result says what is damaged.
local function look_up(s, key, lookup, indexed, item)
  load_counts(s)
  if lookup ~= '' then
    local wrong = find_wrong_parts(s, 1, 1)
    if wrong then return false, false, wrong end
    local used, damaged = find_key(s, key)
    if used or damaged then return used or false, false, damaged end
  end
  local newest, wrong = s.newest and s.newest[item], nil
  if indexed == '1' then wrong = find_wrong_parts(s, 5, 5) end
  if item ~= '' and not newest and not wrong then
    wrong = load_view(s)
    if not wrong then newest, wrong = find_newest(s, item) end
  end
  return false, newest or false, wrong
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

-- Return the state that decides about an append whose guard did not hold: the session, and what `look_up` found; or what
-- is damaged, behind '-'.
local function explain(s, lookup, used, newest, wrong)
  if s.active and not wrong then
    -- If rows are about to be written, the log was checked before.
    if s.rows then wrong = load_view(s) else wrong = find_wrong_entries(s) end
  end
  if wrong then return '-DAMAGED ' .. wrong end
  -- WAIT concerns the last write of its connection, so a retry that finds the first attempt must write, too.
  if used and lookup == 'touch' then call('HINCRBY', s.head, 'touched', 1) end
  return {describe(s), used, newest}
end
