-- What changes more of a session than its end and its deadline. Needs the prelude.

-- How many lines and snapshots were ever written, and how many fields the other hashes have. Whoever
-- changes anything of a state but its end and its deadline loads these before.
local function load_counts(s)
  if not s.counts then
    local lines, taken, keys, snapshots, journal, aside =
      string.match(s.state, ' (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    s.lines, s.taken = tonumber(lines), tonumber(taken)
    s.counts = {tonumber(keys), tonumber(snapshots), tonumber(journal), tonumber(aside)}
  end
  return s.counts
end

-- The checksum of a view is bound to its session, its life and its generation.
local function sum_of_view(s)
  return digest(table.concat({s.view_key, s.life, s.gen, unpack(s.view, 1, 6)}, '\n'))
end

-- Write the fields of the view that changed.
local function save_view(s, changed)
  local fields = {'sum', sum_of_view(s)}
  for _, n in ipairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = VIEW_FIELDS[n], s.view[n]
  end
  call('HSET', s.view_key, unpack(fields))
end

-- Have the engine free all keys of a session after its deadline, and what says that it expired later.
-- `slack` lets the next appends move the deadline without telling every key. Save the head afterwards.
local function expire_keys(s, slack)
  load_counts(s)
  if s.deadline == '' then
    s.ends = nil
    for n = s.first, s.first + 6 do call('PERSIST', KEYS[n]) end
  else
    s.ends = s.deadline + margin + slack
    for n = s.first + 1, s.first + 6 do call('PEXPIRE', KEYS[n], whole(s.ends - now)) end
    call('PEXPIRE', s.head, whole(s.ends - now + KNOWN_MS))
  end
end

-- A key that was just written is freed with the others.
local function expire_one(s, key)
  if s.ends then call('PEXPIRE', key, whole(s.ends - now)) end
end

-- Begin a life behind the end of the log. Returns what a full server refused it with, if it did; then
-- nothing was changed. Save the head afterwards.
local function begin(s, ttl, first, forked, staged)
  local refused = redis.pcall('HSET', s.head, 'touched', 0)
  if type(refused) == 'table' then return refused end
  local time = call('TIME')
  s.life = whole(time[1] * 1000000 + time[2])
  s.born = first or s.stop
  s.stop, s.gen, s.lines, s.taken, s.counts = s.born, '0', 0, 0, {0, 0, 0, 0}
  s.deadline = ttl == '' and '' or whole(now + ttl)
  s.ends, s.staged = nil, staged
  call('HDEL', s.head, 'keyed')
  call('PERSIST', s.head)
  call('UNLINK', unpack(KEYS, s.first + 1, s.first + 6))
  s.view = {whole(s.born), '', whole(now), '{}', forked or '', '0'}
  save_view(s, {1, 2, 3, 4, 5, 6})
end

-- A value that carries its checksum, bound to its session, its life and its name.
local function seal(s, name, text)
  return digest(s.head .. '\n' .. s.life .. '\n' .. name .. '\n' .. text) .. ' ' .. text
end

-- The value without its checksum; nil if it is damaged.
local function unseal(s, name, value)
  local text = string.sub(value, 14)
  return seal(s, name, text) == value and text or nil
end

-- The append with this key: its first position, size, generation and checksums, as one text. A
-- generated key is in no index until a vacuum removes its entries: it is looked for among the newest.
-- The second result says what is damaged.
local function find_key(s, key)
  local value = call('HGET', s.used, key)
  if value then
    local text = unseal(s, 'k' .. key, value)
    return text, not text and 'a key of its callers does not match its checksum' or nil
  end
  local last, left = '+', string.sub(key, 1, 1) == '~' and KEYS_KEPT or 0
  while left > 0 do
    local page = redis.pcall('XREVRANGE', s.log, last, '-', 'COUNT', math.min(left, 500))
    if page.err then return nil, 'its log holds something else' end
    for _, entry in ipairs(page) do
      local fields = entry[2]
      if fields[6] == key then
        local first = string.match(entry[1], '^%d+') - 1
        local size = string.match(fields[4] or '', '^..(%d+)')
        local gen = string.match(fields[2] or '', '^%d+ %d* (%d+)')
        if not size or not gen then return nil, 'entry ' .. first .. ' is damaged' end
        local sums = {}
        for _, each in ipairs(call('XRANGE', s.log, first + 1, first + size)) do
          sums[#sums + 1] = string.sub(each[2][8] or '', SUM_FROM, SUM_TO)
        end
        return first .. ' ' .. size .. ' ' .. gen .. ' ' .. table.concat(sums)
      end
    end
    if #page == 0 then return end
    left = left - #page
    last = string.match(page[#page][1], '^%d+') - 1
    if last == 0 then return end
  end
end
