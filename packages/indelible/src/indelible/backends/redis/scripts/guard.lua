-- What is wrong with a session, or nil. Needs the prelude.
-- The engine frees the other keys only when the deadline has passed, and the head long after them.
-- So no expiry leaves a part without its head, or an active head without a part.
local function wrong_head()
  if not found[1] then
    local left = call('EXISTS', VIEW, LOG, USED, SNAPS, LINES, ASIDE)
    return left > 0 and 'its head is missing' or nil
  end
  if not head_is_sound(HEAD, found) then return 'its head does not match its checksum' end
end

local function wrong_entries()
  load_view()
  local what = wrong_view(VIEW, life, whole(gen), view)
  if what then return what end
  if stop > born and call('EXISTS', LOG) == 0 then return 'its log is missing' end
  if #call('XRANGE', LOG, whole(stop) .. '-1', '+', 'COUNT', 1) > 0 then
    return 'its head is older than its log'
  end
end

local function wrong_part()
  local what = wrong_entries()
  if what then return what end
  if call('HLEN', USED) ~= tonumber(words[8]) then return 'keys of its callers are missing' end
  if call('HLEN', SNAPS) ~= tonumber(words[9]) then return 'snapshots are missing' end
  if call('HLEN', LINES) ~= tonumber(words[10]) then return 'lines of its journal are missing' end
  if call('HLEN', ASIDE) ~= tonumber(words[11]) then return 'its quarantine is missing' end
end

-- What was found to be damaged while values were opened. A script that opens some returns it before
-- it writes anything.
local broken

-- Values of the other hashes, by the letter of what they are and their name.
local function sealed(name, text)
  return seal(HEAD, life, name, text)
end

local function opened(name, value, what)
  if not value then return false end
  local text = unseal(HEAD, life, name, value)
  if not text then broken = damaged(what .. ' does not match its checksum') end
  return text or ''
end

-- Where an entry of the log stands, by its id.
local function position_of(id)
  local number = string.match(id, '^(%d+)%-0$')
  if not number then
    broken = damaged('its log holds an entry that was not written by a store')
    number = string.match(id, '^%d+')
  end
  return tonumber(number) - 1
end

-- The journal's line of this number: its operation, itself, and what undid it.
local function line_at(number)
  local operation = call('HGET', LINES, '#' .. number)
  if not operation then return end
  local what = 'a line of its journal'
  local line = opened('o' .. operation, call('HGET', LINES, 'o' .. operation), what)
  if not broken and (not line or string.match(line, '^%d+') ~= whole(number)) then
    broken = damaged('lines of its journal are missing')
  end
  return operation, line, opened('u' .. operation, call('HGET', LINES, 'u' .. operation), what)
end

-- The snapshots as HGETALL gives them.
local function all_snapshots()
  local records = call('HGETALL', SNAPS)
  for n = 1, #records, 2 do
    records[n + 1] = opened('s' .. records[n], records[n + 1], 'a snapshot')
  end
  return records
end
