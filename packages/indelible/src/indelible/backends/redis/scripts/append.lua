-- Put a batch at the end of the log, whole, once per key. Stands alone: it is the one that counts,
-- so numbers are joined and not formatted where they are whole, and shorter than 14 digits.
-- ARGV: now, margin, ttl, expected, key, fresh, touch; then meta, envelope and checksum of each
-- entry, to which its place is added here.
local call, sub, format = redis.call, string.sub, string.format
local now, clock = ARGV[1], nil
if now == '' then
  clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
else
  now = tonumber(now)
end
local HEAD, VIEW, LOG, USED = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, expected, key = ARGV[3], ARGV[4], ARGV[5]
local made = sub(key, 1, 1) == '~'
local count = (#ARGV - 7) / 3

local function damaged(what)
  return redis.error_reply('DAMAGED ' .. what)
end

-- What may be refused is asked for in protected calls and comes first: then nothing was changed, and
-- the refusal keeps its code, which older servers bury in text.
local head = redis.pcall('HMGET', HEAD, 'state', 'end', 'deadline', 'sum')
if head.err then return head end
-- Nothing is added to a session that is damaged. See guard.lua.
if head[1] then
  if not head_is_sound(HEAD, head) then return damaged('its head does not match its checksum') end
elseif call('EXISTS', unpack(KEYS, 2)) > 0 then
  return damaged('its head is missing')
end
-- The words of its state; the last are those that an append leaves alone.
local life, born, gen, staged, ends, written, keys, counts =
  string.match(head[1] or '', '^(%d+) (%d+) (%d+) (%d) (%d*) (%d+ %d+) (%d+) (.+)$')
local stop, deadline = tonumber(head[2] or 0), head[3] or ''
local active = life and staged == '0' and (deadline == '' or now < tonumber(deadline))
if active then
  if call('EXISTS', VIEW, LOG) < 2 then
    if call('EXISTS', VIEW) == 0 then return damaged('its view is missing') end
    if stop > tonumber(born) then return damaged('its log is missing') end
  end
  if (not made or ARGV[6] == '0') and call('HLEN', USED) ~= tonumber(keys) then
    return damaged('keys of its callers are missing')
  end
end

if active and ARGV[6] == '0' then
  local done = call('HGET', USED, key)
  if done then
    done = unseal(HEAD, life, 'k' .. key, done)
    if not done then return damaged('a key of its callers does not match its checksum') end
  end
  -- A made key is in no index: it is only looked for after a lost reply, among the newest entries.
  local last, left = '+', (made and not done) and KEYS_KEPT or 0
  while left > 0 and not done do
    local page = call('XREVRANGE', LOG, last, '-', 'COUNT', math.min(left, 500))
    for _, entry in ipairs(page) do
      local fields = entry[2]
      if fields[6] == key then
        local first = string.match(entry[1], '^%d+') - 1
        local size = string.match(fields[4] or '', '^..(%d+)')
        local made_in = string.match(fields[2] or '', '^%d+ %d* (%d+)')
        if not size or not made_in then return damaged('entry ' .. first .. ' is damaged') end
        local sums = {}
        for _, each in ipairs(call('XRANGE', LOG, first + 1, first + size)) do
          sums[#sums + 1] = sub(each[2][8] or '', SUM_FROM, SUM_TO)
        end
        done = first .. ' ' .. size .. ' ' .. made_in .. ' ' .. table.concat(sums)
        break
      end
    end
    if #page == 0 then break end
    left = left - #page
    last = string.match(page[#page][1], '^%d+') - 1
    if last == 0 then break end
  end
  if done then
    local view = call('HMGET', VIEW, unpack(VIEW_FIELDS))
    local what = wrong_view(VIEW, life, gen, view)
    if what then return damaged(what) end
    if ARGV[7] == '1' then call('HINCRBY', HEAD, 'touched', 1) end
    return {'replayed', done, life, stop, view[1], view[2]}
  end
end
if expected ~= '' then
  local version = 'new'
  if life and staged == '0' then
    version = life .. '.' .. stop .. '.' .. gen
    if not active then
      version = now < tonumber(deadline) + KNOWN_MS and version .. '!' or 'new'
    end
  end
  if version ~= expected then return {'moved', version} end
end
if stop + count > LOG_MAX then return {'full', stop} end

local had_deadline = active and deadline ~= ''
deadline = ttl == '' and '' or now + ttl
local changed = not active
if not active then
  clock = clock or call('TIME')
  life, born, gen, ends = format('%.0f', clock[1] * 1000000 + clock[2]), stop, '0', ''
  written, keys, counts = '0 0', 0, '0 0 0'
  local refused = redis.pcall('HSET', HEAD, 'touched', 0)
  if type(refused) == 'table' then return refused end
  call('HDEL', HEAD, 'keyed')
  call('PERSIST', HEAD)
  call('UNLINK', unpack(KEYS, 2))
  call('HSET', VIEW, 'tail', stop, 'extents', '', 'created', now, 'metadata', '{}', 'forked', '',
    'vacuums', 0, 'sum', sum_of_view(VIEW, life, gen, {stop, '', now, '{}', '', '0'}))
end

-- The entries before the head: a refusal comes with the first write, and then nothing was changed.
local place = now + (ttl == '' and 0 or deadline) + gen
local stamp = now .. ' ' .. deadline .. ' ' .. gen .. ' '
local refused = redis.pcall('XADD', LOG, (stop + 1) .. '-0',
  't', stamp .. format('%.0f', ARGV[10] + place + stop), 'm', ARGV[8], 'k', key, 'e', ARGV[9])
if type(refused) == 'table' then
  if #call('XRANGE', LOG, stop + 1, '+', 'COUNT', 1) == 0 then return refused end
  return damaged('its head is older than its log')
end
for n = 2, count do
  local at = 5 + 3 * n
  call('XADD', LOG, (stop + n) .. '-0',
    't', stamp .. format('%.0f', ARGV[at + 2] + place + stop + n - 1), 'm', ARGV[at], 'k', '',
    'e', ARGV[at + 1])
end
if not made then
  local sums = {}
  for n = 1, count do sums[n] = sub(ARGV[6 + 3 * n], SUM_FROM, SUM_TO) end
  local value = stop .. ' ' .. count .. ' ' .. gen .. ' ' .. table.concat(sums)
  call('HSET', USED, key, seal(HEAD, life, 'k' .. key, value))
  keys, changed = keys + 1, true
end
if ttl ~= '' then
  -- All keys of the session run out together, and what says that it expired outlives them. They are
  -- given some time ahead, so that the next appends need not push all of them on again.
  local slack = math.floor(math.min(ttl / SLACK_SHARE, SLACK_MS))
  local ahead = (tonumber(ends) or 0) - deadline - ARGV[2]
  if ahead < 0 or ahead > slack then
    local left = ttl + ARGV[2] + slack
    for n = 2, 7 do call('PEXPIRE', KEYS[n], left) end
    call('PEXPIRE', HEAD, left + KNOWN_MS)
    ends, changed = now + left, true
  elseif not made then
    call('PEXPIRE', USED, ends - now)
  end
elseif had_deadline then
  for n = 1, 7 do call('PERSIST', KEYS[n]) end
  ends, changed = '', true
end
local added = stop + count
if changed then
  local state = life .. ' ' .. born .. ' ' .. gen .. ' 0 ' .. ends .. ' ' .. written .. ' ' .. keys
    .. ' ' .. counts
  call('HSET', HEAD, 'state', state, 'end', added, 'deadline', deadline,
    'sum', format('%.0f', sum_of_head(HEAD, state, added, deadline)))
else
  -- The state is the same, and so is its share of the checksum.
  local later = ttl == '' and 0 or deadline - head[3]
  call('HSET', HEAD, 'end', added, 'deadline', deadline,
    'sum', format('%.0f', head[4] + count + later))
end
return {'appended', stop, life, gen}
