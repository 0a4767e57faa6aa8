-- Functions that change more of a session than its end and its deadline. Needs the prelude.

-- Load how many journal lines and snapshots were ever written, how many fields the other hashes have, and how many
-- members the index of items has.
local function load_counts(s)
  if not s.counts then
    local lines, taken, keys, snapshots, journal, quarantine, items =
      string.match(s.state, ' (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    s.lines, s.taken = tonumber(lines), tonumber(taken)
    s.counts = {tonumber(keys), tonumber(snapshots), tonumber(journal), tonumber(quarantine),
      tonumber(items)}
  end
  return s.counts
end

-- Compute the checksum of a view, which is bound to its session, its life and its generation.
local function compute_view_sum(s)
  return digest(table.concat({s.view_key, s.life, s.gen, unpack(s.view, 1, 5)}, '\n'))
end

-- Load the view; returns what is wrong with it, or nil.
local function load_view(s)
  local view = redis.pcall('HMGET', s.view_key, VIEW_FIELDS)
  s.view = view
  if not view[1] then return 'its view is missing' end
  for n = 2, 6 do
    if not view[n] then return 'a part of its view is missing' end
  end
  if view[6] ~= compute_view_sum(s) then return 'its view does not match its checksum' end
end

-- Return what is wrong with the parts that entries are found by, or nil.
local function find_wrong_entries(s)
  local wrong = load_view(s)
  if wrong then return wrong end
  if s.stop > s.born and call('EXISTS', s.log) == 0 then return 'its log is missing' end
  if call('ZCOUNT', s.log, s.stop, '+inf') > 0 then return 'its head is older than its log' end
end

local function count_part(s, n)
  local key = KEYS[s.first + 2 + n]
  return n == 5 and call('ZCARD', key) or call('HLEN', key)
end

-- Return what is wrong with the parts from this one to that one, or nil.
local function find_wrong_parts(s, from, to)
  for n = from, to do
    if count_part(s, n) ~= s.counts[n] then
      return ({'keys of its callers are missing', 'snapshots are missing', 'lines of its journal are missing',
        'its quarantine is missing', 'its index of items is not whole'})[n]
    end
  end
end

local function describe(s)
  if s.life and not s.view then s.view = redis.pcall('HMGET', s.view_key, VIEW_FIELDS) end
  return {now, s.life or false, s.born, s.stop, s.gen, s.deadline, s.staged and '1' or '0',
    s.created or false, s.activity or false, unpack(s.view or {}, 1, 5)}
end

-- Write the fields of the view that changed.
local function save_view(s, numbers)
  changed = true
  local fields = {'sum', compute_view_sum(s)}
  for _, n in ipairs(numbers) do
    fields[#fields + 1], fields[#fields + 2] = ({VIEW_FIELDS})[n], s.view[n]
  end
  call('HSET', s.view_key, unpack(fields))
end

-- Have the server free all keys of a session after its deadline, and the head, which says that it expired, later.
-- With `slack`, the next appends need not update the expiry of every key. Save the head afterwards.
local function expire_keys(s, slack)
  load_counts(s)
  if s.deadline == '' then
    s.ends = nil
    for n = s.first, s.first + 7 do call('PERSIST', KEYS[n]) end
  else
    s.ends = s.deadline + margin + slack
    for n = s.first + 1, s.first + 7 do call('PEXPIRE', KEYS[n], whole(s.ends - now)) end
    call('PEXPIRE', s.head, whole(s.ends - now + KNOWN_MS))
  end
end

-- Have a key that was just written expire with the others.
local function expire_one(s, key)
  if s.ends then call('PEXPIRE', key, whole(s.ends - now)) end
end

-- Begin a life behind the end of the log. Returns the error if a full server refused; then nothing was changed.
-- Save the head afterwards.
local function begin(s, ttl, first, forked, staged)
  local refused = redis.pcall('HSET', s.head, 'touched', 0)
  if type(refused) == 'table' then return refused end
  local time = call('TIME')
  s.life = whole(time[1] * 1000000 + time[2])
  s.born = first or s.stop
  s.stop, s.gen, s.lines, s.taken, s.counts = s.born, '0', 0, 0, {0, 0, 0, 0, 0}
  s.deadline = ttl == '' and '' or whole(now + ttl)
  s.ends, s.staged, s.active = nil, staged, not staged
  -- The last activity of a copy is known when it is shown.
  s.created, s.activity = now, staged and 0 or now
  call('PERSIST', s.head)
  call('UNLINK', unpack(KEYS, s.first + 1, s.first + 7))
  s.view = {s.born, '', '{}', forked or '', 0}
  save_view(s, {1, 2, 3, 4, 5})
end

-- Put its checksum before a value, bound to its session, its life and its name.
local function seal(s, name, text)
  return digest(s.head .. '\n' .. s.life .. '\n' .. name .. '\n' .. text) .. ' ' .. text
end

-- Return a value without its checksum; nil if it is damaged.
local function unseal(s, name, value)
  local text = string.sub(value, 14)
  return seal(s, name, text) == value and text or nil
end

-- Parse a row: where its envelope, its links and its key begin, and its words. nil if it is damaged.
local function parse_row(row)
  local written, deadline, gen, kind, keep, batch, key_size, links_size, at = string.match(row, ROW)
  if not at then return nil end
  return at + key_size + links_size, at + key_size, at, kind, batch, gen, written, deadline, keep
end

-- Whether a key is in the index of keys as soon as it is used. A generated key only is if a vacuum keeps it.
local function is_indexed(key)
  return string.sub(key, 1, 1) ~= '~'
end

-- Describe the append that begins with this row: its first position, size, generation and the checksums of
-- its entries, as one text. The second result says what is damaged.
local function describe_append(s, row)
  local _, _, _, _, size, gen = parse_row(row)
  local first, sums = call('ZSCORE', s.log, row), {}
  for n, each in ipairs(call('ZRANGEBYSCORE', s.log, first, first + (size or 1) - 1)) do
    local at = parse_row(each)
    if not at then return nil, 'an entry of the append is damaged' end
    sums[n] = string.sub(each, at + SUM_FROM - 1, at + SUM_TO - 1)
  end
  return first .. ' ' .. size .. ' ' .. gen .. ' ' .. table.concat(sums)
end

-- Find the append with this key, as `describe_append` describes it. The index of keys has its first position or,
-- if a vacuum removed entries of it and kept the key, the description. A generated key is looked for among the
-- newest entries.
local function find_key(s, key)
  local value = call('HGET', s.used, key)
  if value then
    local text = unseal(s, 'k' .. key, value)
    if not text then return nil, 'a key of its callers does not match its checksum' end
    if string.find(text, ' ', 1, true) then return text end
    local row = call('ZRANGEBYSCORE', s.log, text, text)[1]
    if not row then return nil, 'an entry of the append is missing' end
    return describe_append(s, row)
  end
  local most = is_indexed(key) and 0 or KEYS_KEPT
  for rank = 0, most - 1, READ_PAGE do
    local page = call('ZREVRANGE', s.log, rank, math.min(rank + READ_PAGE, most) - 1)
    for _, row in ipairs(page) do
      local _, links_at, key_at = parse_row(row)
      if key_at and string.sub(row, key_at, links_at - 1) == key then return describe_append(s, row) end
    end
    if #page < READ_PAGE then return end
  end
end

-- Build a member of the index of items: by id, and the newest position first.
local function build_member(item, position)
  return item .. '\0' .. string.format('%010.0f', LOG_MAX - position)
end

-- Return the position in a member of the index of items; nil if it is damaged.
local function parse_position(member)
  local digits = string.match(member, '%z(%d%d%d%d%d%d%d%d%d%d)$')
  return digits and LOG_MAX - digits
end

-- Return the member for a row; nil if it has no id.
local function index_row(row, position)
  local envelope_at, links_at, _, kind = parse_row(row)
  if envelope_at == links_at or not string.find(ITEM_KINDS, kind, 1, true) then return nil end
  return build_member(string.sub(row, links_at, envelope_at - 1), position)
end

-- Find the newest visible entry of an item, or nil. Needs the view. Index and extents are followed in turn, so that
-- little of either is looked at. The second result says what is damaged.
local function find_newest(s, item)
  local extents = {}
  for first, last in string.gmatch(s.view[2] .. ';' .. s.view[1] .. ',' .. s.stop, '(%d+),(%d+)') do
    extents[#extents + 1] = {tonumber(first), tonumber(last)}
  end
  local last, n = s.stop, #extents
  while true do
    local found = call('ZRANGEBYLEX', s.items, '[' .. build_member(item, last - 1),
      '[' .. build_member(item, s.born), 'LIMIT', 0, 1)[1]
    if not found then return nil end
    local position = parse_position(found)
    if not position then return nil, 'its index of items has a damaged member' end
    while n > 0 and extents[n][1] > position do n = n - 1 end
    if n == 0 then return nil end
    last = extents[n][2]
    if position < last then return position end
  end
end
