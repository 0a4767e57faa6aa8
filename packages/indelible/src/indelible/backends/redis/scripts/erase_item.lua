-- Overwrite the entries of an item, the oldest first, a portion at a time; returns how many these were,
-- the bytes of their envelopes, and whether there are more. ARGV: 3 item, 4 envelope, 5 its checksum
-- without the place and times of an entry.
if not s.active then return {0, 0, 0} end
local envelope, sum = ARGV[4], string.sub(ARGV[4], SUM_FROM, SUM_TO)
local members = call('ZREVRANGEBYLEX', s.items, '[' .. build_member(ARGV[3], s.born),
  '[' .. build_member(ARGV[3], s.stop), 'LIMIT', 0, REMOVE_ENTRIES)

-- Find the append that an entry belongs to: its first position, its end and, if none of its entries is
-- gone, its key. A vacuum that removes entries keeps the checksums of the others as they were.
local function find_append_at(position)
  for first = position, s.born, -1 do
    local row = call('ZRANGEBYSCORE', s.log, first, first)[1]
    local _, links_at, key_at, _, size = parse_row(row or '')
    if not size then break end
    if tonumber(size) > 0 then
      local stop = first + size
      local is_whole = position < stop and call('ZCOUNT', s.log, first, stop - 1) == tonumber(size)
      local key = is_whole and string.sub(row, key_at, links_at - 1)
      return {first = first, stop = stop, key = key}
    end
  end
  return {first = position, stop = position + 1}
end

-- Compute everything, so that nothing is written if something is damaged.
local rows, used, bytes, done, append = {}, {}, 0, 0, nil
for n, member in ipairs(members) do
  local position = parse_position(member)
  local row = call('ZRANGEBYSCORE', s.log, position, position)[1] or ''
  if index_row(row, position) ~= member then
    return build_error('its index of items does not match its log')
  end
  if bytes >= MEASURE_BYTES then break end
  local at, links_at, key_at, kind, batch, gen, written, deadline, keep = parse_row(row)
  local place = position + written + (deadline == '' and 0 or deadline) + gen + batch
  local words = {written, deadline, gen, whole(ARGV[5] + place), kind .. keep .. batch, links_at - key_at,
    '0', ''}
  rows[n] = table.concat(words, ' ') .. string.sub(row, key_at, links_at - 1) .. envelope
  bytes, done = bytes + #row - (at - 1), n
  -- A caller's key has the checksums of its entries.
  if not append or position >= append.stop then append = find_append_at(position) end
  local key = append.key
  if key and not used[key] then
    used[key] = read_value('k' .. key, call('HGET', s.used, key), 'a key of its callers') or nil
    if broken then return broken end
  end
  if key and used[key] then
    local before, sums = string.match(used[key], '^(%d+ %d+ %d+ )(.*)$')
    local from = (position - append.first) * #sum
    used[key] = before .. string.sub(sums, 1, from) .. sum .. string.sub(sums, from + #sum + 1)
  end
end
for n = 1, done do
  local position = parse_position(members[n])
  call('ZREMRANGEBYSCORE', s.log, position, position)
  call('ZADD', s.log, position, rows[n])
  call('ZREM', s.items, members[n])
end
for key, value in pairs(used) do call('HSET', s.used, key, seal(s, 'k' .. key, value)) end
if done > 0 then
  -- A log that had no other entry was a new key for a moment.
  expire_one(s, s.log)
  s.counts[5] = count_part(5)
  save_head(s)
end
return {done, bytes, (done < #members or done == REMOVE_ENTRIES) and 1 or 0}
