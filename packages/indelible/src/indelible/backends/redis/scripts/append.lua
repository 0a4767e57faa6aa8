-- Append entries: one to n appends, of one to n sessions. Each has its own guard. Answers for each with
-- the new version; with 0 if the guard does not hold, and then nothing was written for it; with the
-- error, behind '-', if the server refused.
-- ARGV from 3 on, for each append: where in KEYS its session begins, ttl, expected, key, fresh, over, the
-- number of its entries; then meta, envelope and checksum of each entry, to which its place is added
-- here. `over` names the life that the caller found to be over ('-' for none): the append then begins
-- the next one.

-- The functions of changes.lua. Most appends need none of them, and a script makes its functions anew
-- in every call: these are made when they are first needed.
local more
local function changes()
  more = more or load_changes()
  return more
end

-- Whether what an append touches is there and as it was written.
local function is_whole(s)
  if s.wrong then return false end
  if not is_active(s) then return true end
  local there = call('EXISTS', s.view_key, s.log)
  return there == 2 or (s.stop == s.born and call('EXISTS', s.view_key) == 1)
end

-- Whether this append may be written.
local function may_append(s, expected, key, fresh, over, count)
  if s.stop + count > LOG_MAX then return false end
  if not is_active(s) then
    if over == '' then return not s.life and expected == '' end
    return over == (s.life or '-')
  end
  if over ~= '' or (expected ~= '' and expected ~= version_of(s)) then return false end
  if fresh == '1' then return true end
  if redis.pcall('HLEN', s.used) ~= changes().load_counts(s)[1] then return false end
  local used, wrong = changes().find_key(s, key)
  return not used and not wrong
end

-- Write one append; what the server refused it with, if it did. The first write is the one that a full
-- server refuses, or that finds a log that is longer than its head says: then nothing was changed.
local function write(s, ttl, key, at, count)
  local was_active, had_deadline = is_active(s), s.deadline ~= ''
  if not was_active then
    local refused = changes().begin(s, ttl)
    if refused then return refused end
  end
  local deadline = ttl == '' and '' or whole(now + ttl)
  local place = now + (ttl == '' and 0 or deadline) + s.gen
  local stamp = whole(now) .. ' ' .. deadline .. ' ' .. s.gen .. ' '
  local named, sums = string.sub(key, 1, 1) ~= '~', {}
  for n = 0, count - 1 do
    local meta, envelope, checksum = ARGV[at + 3 * n], ARGV[at + 3 * n + 1], ARGV[at + 3 * n + 2]
    local added = redis.pcall('XADD', s.log, whole(s.stop + 1) .. '-0',
      't', stamp .. whole(checksum + place + s.stop), 'm', meta, 'k', n == 0 and key or '',
      'e', envelope)
    if type(added) == 'table' then return added end
    s.stop = s.stop + 1
    if named then sums[n + 1] = string.sub(envelope, SUM_FROM, SUM_TO) end
  end
  s.deadline = deadline
  if named then
    local value = whole(s.stop - count) .. ' ' .. count .. ' ' .. s.gen .. ' '
      .. table.concat(sums)
    call('HSET', s.used, key, changes().seal(s, 'k' .. key, value))
    local counts = changes().load_counts(s)
    counts[1] = counts[1] + 1
    changes().expire_one(s, s.used)
  end
  if ttl ~= '' then
    local slack = math.floor(math.min(ttl / SLACK_SHARE, SLACK_MS))
    local ahead = (s.ends or 0) - s.deadline - margin
    if ahead < 0 or ahead > slack then changes().expire_keys(s, slack) end
  elseif had_deadline and was_active then
    changes().expire_keys(s)
  end
end

local answers, sessions, at, last = {}, {}, 3, #ARGV
while at < last do
  local first, ttl, expected, key, fresh, over, count = unpack(ARGV, at, at + 6)
  first, count = tonumber(first), tonumber(count)
  local s, answer = sessions[first], 0
  if not s then
    s = load_session(first)
    s.usable = not s.error and is_whole(s)
    sessions[first] = s
  end
  if s.error then
    answer = '-' .. s.error.err
  elseif s.usable and may_append(s, expected, key, fresh, over, count) then
    -- Protected, so that what the server refuses to one does not stop the others.
    local _, refused = pcall(write, s, ttl, key, at + 7, count)
    if refused then
      -- With 0 if the log is longer than the head says, so that the caller looks what is wrong.
      local beyond = redis.pcall('XRANGE', s.log, whole(s.stop + 1), '+', 'COUNT', 1)
      if beyond.err or #beyond == 0 then answer = '-' .. (refused.err or refused) end
    else
      answer, s.written = version_of(s), true
    end
  end
  answers[#answers + 1] = answer
  at = at + 7 + 3 * count
end
for _, s in pairs(sessions) do
  if s.written then save_head(s) end
end
return answers
