-- Put a batch at the end of the log, whole, once per key. Stands alone: it is the one that counts,
-- so numbers are joined and not formatted (they are whole, and shorter than 14 digits).
-- ARGV: now, margin, ttl, expected, key, fresh, touch; then meta and envelope of each entry.
local call, sub = redis.call, string.sub
local now, clock = ARGV[1], nil
if now == '' then
  clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
else
  now = tonumber(now)
end
local HEAD, LOG = KEYS[1], KEYS[3]
local ttl, expected, key = ARGV[3], ARGV[4], ARGV[5]
local made = sub(key, 1, 1) == '~'
-- What may be refused is asked for in protected calls and comes first: then nothing was changed, and
-- the refusal keeps its code, which older servers bury in text.
local head = redis.pcall('HMGET', HEAD, 'life', 'end', 'gen', 'deadline', 'staged', 'until', 'born',
  'keys')
if head.err then return head end
local life, stop, gen, deadline = head[1], tonumber(head[2] or 0), head[3], head[4] or ''
local count = (#ARGV - 7) / 2
local active = life and head[5] == '0' and (deadline == '' or now < tonumber(deadline))

local function damaged(what)
  return redis.error_reply('DAMAGED ' .. what)
end

-- Nothing is added to a session that lost a key. See guard.lua.
if active then
  if call('EXISTS', KEYS[2]) == 0 then return damaged('its view is missing') end
  if stop > tonumber(head[7]) and call('EXISTS', LOG) == 0 then
    return damaged('its log is missing')
  end
  if #call('XRANGE', LOG, stop + 1, '+', 'COUNT', 1) > 0 then
    return damaged('its head is older than its log')
  end
  if (not made or ARGV[6] == '0') and call('HLEN', KEYS[4]) ~= tonumber(head[8]) then
    return damaged('keys of its callers are missing')
  end
elseif not life and call('EXISTS', unpack(KEYS, 2)) > 0 then
  return damaged('its head is missing')
end

if active and ARGV[6] == '0' then
  local done = call('HGET', KEYS[4], key)
  -- A made key is in no index: it is only looked for after a lost reply, among the newest entries.
  local last, left = '+', (made and not done) and KEYS_KEPT or 0
  while left > 0 and not done do
    local page = call('XREVRANGE', LOG, last, '-', 'COUNT', math.min(left, 500))
    for _, entry in ipairs(page) do
      local fields = entry[2]
      if fields[6] == key then
        local first = string.match(entry[1], '^%d+') - 1
        local size = string.match(fields[4], '^..(%d+)')
        local sums = {}
        for _, each in ipairs(call('XRANGE', LOG, first + 1, first + size)) do
          sums[#sums + 1] = sub(each[2][8], SUM_FROM, SUM_TO)
        end
        done = first .. ' ' .. size .. ' ' .. string.match(fields[2], '%d+$') .. ' '
          .. table.concat(sums)
        break
      end
    end
    if #page == 0 then break end
    left = left - #page
    last = string.match(page[#page][1], '^%d+') - 1
    if last == 0 then break end
  end
  if done then
    if ARGV[7] == '1' then call('HINCRBY', HEAD, 'touched', 1) end
    local view = call('HMGET', KEYS[2], 'tail', 'extents')
    return {'replayed', done, life, stop, view[1], view[2]}
  end
end
if expected ~= '' then
  local version = 'new'
  if life and head[5] == '0' then
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
local keys = active and tonumber(head[8]) or 0
if not active then
  clock = clock or call('TIME')
  life, gen = string.format('%.0f', clock[1] * 1000000 + clock[2]), '0'
  local refused = redis.pcall('HSET', HEAD, 'life', life, 'born', stop, 'end', stop, 'gen', 0,
    'deadline', deadline, 'staged', '0', 'until', '', 'lines', 0, 'snaps', 0, 'keys', 0,
    'snapshots', 0, 'journal', 0, 'aside', 0)
  if type(refused) == 'table' then return refused end
  call('HDEL', HEAD, 'touched', 'keyed')
  call('PERSIST', HEAD)
  call('UNLINK', KEYS[2], LOG, KEYS[4], KEYS[5], KEYS[6], KEYS[7])
  call('HSET', KEYS[2], 'tail', stop, 'extents', '', 'created', now, 'metadata', '{}',
    'forked', '', 'vacuums', 0)
end

local stamp = now .. ' ' .. deadline .. ' ' .. gen
-- The entries first: a refusal comes with the first write, and then nothing was changed.
local refused = redis.pcall('XADD', LOG, (stop + 1) .. '-0', 't', stamp, 'm', ARGV[8], 'k', key,
  'e', ARGV[9])
if type(refused) == 'table' then return refused end
for n = 2, count do
  call('XADD', LOG, (stop + n) .. '-0', 't', stamp, 'm', ARGV[6 + 2 * n], 'k', '',
    'e', ARGV[7 + 2 * n])
end
if not made then
  local sums = {}
  for n = 1, count do sums[n] = sub(ARGV[7 + 2 * n], SUM_FROM, SUM_TO) end
  call('HSET', KEYS[4], key, stop .. ' ' .. count .. ' ' .. gen .. ' ' .. table.concat(sums))
  keys = keys + 1
end
local ends = active and head[6] or ''
if ttl ~= '' then
  -- All keys of the session run out together, and what says that it expired outlives them. They are
  -- given some time ahead, so that the next appends need not push all of them on again.
  local slack = math.floor(math.min(ttl / SLACK_SHARE, SLACK_MS))
  local ahead = (tonumber(ends) or 0) - deadline - ARGV[2]
  if ahead < 0 or ahead > slack then
    local left = ttl + ARGV[2] + slack
    for n = 2, 7 do call('PEXPIRE', KEYS[n], left) end
    call('PEXPIRE', HEAD, left + KNOWN_MS)
    ends = now + left
  elseif not made then
    call('PEXPIRE', KEYS[4], ends - now)
  end
elseif had_deadline then
  for n = 1, 7 do call('PERSIST', KEYS[n]) end
  ends = ''
end
call('HSET', HEAD, 'end', stop + count, 'deadline', deadline, 'until', ends, 'keys', keys)
return {'appended', stop, life, gen}
