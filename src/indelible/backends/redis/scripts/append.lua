-- Put a batch at the end of the log, whole, once per key. Stands alone: it is the one that counts.
-- ARGV: now, margin, ttl, expected, key, fresh, touch; then meta and envelope of each entry.
local call = redis.call
local now = ARGV[1]
local clock
if now == '' then
  clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
else
  now = tonumber(now)
end
local ttl, expected, key, fresh = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local head = call('HMGET', KEYS[1], 'life', 'end', 'gen', 'deadline', 'staged')
local life, stop, gen, deadline = head[1], tonumber(head[2] or 0), head[3], head[4] or ''
local count = (#ARGV - 7) / 2
local active = life and head[5] == '0' and (deadline == '' or now < tonumber(deadline))

local function earlier()
  local kept = call('HGET', KEYS[4], key)
  if kept then return kept end
  if string.sub(key, 1, 1) ~= '~' then return nil end
  -- A made key is in no index: it is only looked for after a lost reply, among the newest entries.
  local last, left = '+', KEYS_KEPT
  while left > 0 do
    local page = call('XREVRANGE', KEYS[3], last, '-', 'COUNT', math.min(left, 500))
    for _, entry in ipairs(page) do
      local fields = entry[2]
      if fields[6] == key then
        local first = tonumber(string.match(entry[1], '^%d+')) - 1
        local size = tonumber(string.match(fields[4], '^..(%d+)'))
        local written = string.match(fields[2], '%d+$')
        local sums = {}
        for _, each in ipairs(call('XRANGE', KEYS[3], entry[1], string.format('%.0f', first + size))) do
          sums[#sums + 1] = string.sub(each[2][8], SUM_FROM, SUM_TO)
        end
        return string.format('%.0f %d %s %s', first, size, written, table.concat(sums))
      end
    end
    if #page == 0 then return nil end
    left = left - #page
    last = string.format('%.0f', tonumber(string.match(page[#page][1], '^%d+')) - 1)
    if last == '0' then return nil end
  end
  return nil
end

if active and fresh == '0' then
  local done = earlier()
  if done then
    if ARGV[7] == '1' then call('HINCRBY', KEYS[1], 'touched', 1) end
    local view = call('HMGET', KEYS[2], 'tail', 'extents')
    return {'replayed', done, life, string.format('%.0f', stop), view[1], view[2]}
  end
end
if expected ~= '' then
  local version = 'new'
  if life and head[5] == '0' then
    version = string.format('%s.%.0f.%s', life, stop, gen)
    if not active then
      version = now < tonumber(deadline) + KNOWN_MS and version .. '!' or 'new'
    end
  end
  if version ~= expected then return {'moved', version} end
end
if stop + count > LOG_MAX then return {'full', string.format('%.0f', stop)} end

local had_deadline = active and deadline ~= ''
deadline = ttl == '' and '' or string.format('%.0f', now + tonumber(ttl))
if active then
  if ttl == '' and not had_deadline then
    call('HSET', KEYS[1], 'end', string.format('%.0f', stop + count))
  else
    call('HSET', KEYS[1], 'end', string.format('%.0f', stop + count), 'deadline', deadline)
  end
else
  clock = clock or call('TIME')
  call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
  life, gen = string.format('%.0f', clock[1] * 1000000 + clock[2]), '0'
  local born = string.format('%.0f', stop)
  call('HSET', KEYS[1], 'life', life, 'born', born, 'end', string.format('%.0f', stop + count),
    'gen', 0, 'deadline', deadline, 'staged', '0')
  call('HSET', KEYS[2], 'tail', born, 'extents', '', 'created', string.format('%.0f', now),
    'metadata', '{}', 'forked', '', 'vacuums', 0)
end

local stamp = string.format('%.0f %s %s', now, deadline, gen)
local sums = {}
for n = 1, count do
  local envelope = ARGV[7 + 2 * n]
  call('XADD', KEYS[3], string.format('%.0f-0', stop + n), 't', stamp, 'm', ARGV[6 + 2 * n],
    'k', n == 1 and key or '', 'e', envelope)
  sums[n] = string.sub(envelope, SUM_FROM, SUM_TO)
end
if string.sub(key, 1, 1) ~= '~' then
  call('HSET', KEYS[4], key, string.format('%.0f %d %s %s', stop, count, gen, table.concat(sums)))
end
if ttl ~= '' then
  local left = tonumber(ttl) + tonumber(ARGV[2])
  for n = 2, 7 do call('PEXPIRE', KEYS[n], string.format('%.0f', left)) end
  call('PEXPIRE', KEYS[1], string.format('%.0f', left + KNOWN_MS))
elseif had_deadline then
  for n = 1, 7 do call('PERSIST', KEYS[n]) end
end
return {'appended', string.format('%.0f', stop), life, gen}
