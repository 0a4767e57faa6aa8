-- One to n appends, of one to n sessions, each with its own guard. The answer to an append is the new version;
-- or, if its guard does not hold, the state that decides about it (`explain`), and nothing was written for it;
-- or an error behind '-', if the server refused it.
-- ARGV from 3 on, for each append: the index in KEYS where its session begins, ttl, expected version, key, how the key
-- is looked up ('' if it is fresh; 'touch' if a retry that finds it must write, too), whether entries go into the index
-- of items, an item ('' for none) and the expected position of its newest visible entry ('' for none), the number of
-- its entries; then checksum and row of each entry, to which position and times are added here.
-- A session that is not active begins its next life.

-- The functions of changes.lua and append_parts.lua, created on first use: most appends need none of them.
local more
local function changes()
  more = more or load_changes()
  return more
end

-- Whether what an append needs is there and undamaged.
local function is_usable(s)
  if s.error or s.wrong or not s.active then return not s.error and not s.wrong end
  return redis.pcall('ZCOUNT', s.log, s.stop, '+inf') == 0
    and call('EXISTS', s.view_key, s.log) == (s.stop > s.born and 2 or 1)
end

-- Write the rows of a session; returns the error if the server refused. A full server refuses the first
-- write, before anything was changed.
local function write(s)
  local log, rows = s.log, s.rows
  for at = 1, #rows, PUSHED do
    local added = redis.pcall('ZADD', log, unpack(rows, at, math.min(at + PUSHED - 1, #rows)))
    if type(added) == 'table' then return added.err end
  end
  if s.keys then changes().write_keys(s) end
  if s.members then changes().write_members(s) end
  if s.ttl ~= '' then
    local slack = math.floor(math.min(s.ttl / SLACK_SHARE, SLACK_MS))
    local ahead = (s.ends or 0) - s.deadline - margin
    if ahead < 0 or ahead > slack then changes().expire_keys(s, slack) end
  elseif s.ends then
    changes().expire_keys(s)
  end
  save_head(s)
end

local function format_refusal(error)
  return '-' .. (error.err or error)
end

local answers, sessions, at, last = {}, {}, 3, #ARGV
while at < last do
  local first, ttl, expected, key, lookup, indexed, item, place, count = unpack(ARGV, at, at + 8)
  local s = sessions[first]
  if not s then
    s = load_session(tonumber(first))
    s.usable = is_usable(s)
    sessions[first] = s
  end
  -- The guard.
  local answer = s.error and format_refusal(s.error)
  local done, used, newest, wrong = true, false, false, s.wrong
  if s.usable and s.active and (lookup ~= '' or indexed == '1') then
    done, used, newest, wrong = pcall(changes().look_up, s, key, lookup, indexed, item)
  end
  if not done then answer = format_refusal(used) end
  local holds = s.usable and not answer and not used and not wrong and s.stop + count <= LOG_MAX
    and newest == (tonumber(place) or false) and not (s.keys and s.keys[key])
    and (expected == '' or expected == format_version(s))
  if holds and not s.active then
    local refused = changes().begin(s, ttl)
    if refused then answer, holds = format_refusal(refused), false end
  end
  at = at + 9
  if holds then
    local deadline = ttl == '' and '' or whole(now + ttl)
    local stamp = now .. ' ' .. deadline .. ' ' .. s.gen .. ' '
    local base, rows, stop = now + (ttl == '' and 0 or deadline) + s.gen, s.rows or {}, s.stop
    for n = at, at + 2 * count - 1, 2 do
      local row = stamp .. whole(ARGV[n] + base + stop) .. ' ' .. ARGV[n + 1]
      rows[#rows + 1] = stop
      rows[#rows + 1] = row
      if indexed == '1' then changes().add_member(s, row, stop) end
      stop = stop + 1
    end
    if lookup ~= '' then changes().add_key(s, key) end
    s.rows, s.stop, s.deadline, s.ttl, s.activity = rows, stop, deadline, ttl, math.max(s.activity, now)
    answer = format_version(s)
  end
  if not answer then
    local explained, found = pcall(changes().explain, s, lookup, used, newest, wrong)
    answer = explained and found or format_refusal(found)
  end
  if s.rows then
    s.asked = s.asked or {}
    s.asked[#s.asked + 1] = #answers + 1
  end
  answers[#answers + 1] = answer
  at = at + 2 * count
end
for _, s in pairs(sessions) do
  if s.rows then
    -- Protected, so that an error of one session does not affect the others.
    local _, refused = pcall(write, s)
    if refused then
      for _, asked in ipairs(s.asked) do answers[asked] = format_refusal(refused) end
    end
  end
end
return answers
