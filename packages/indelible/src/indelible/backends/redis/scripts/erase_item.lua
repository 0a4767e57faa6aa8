-- Overwrite the entries of an item, the oldest first, a portion at a time; returns their number, the bytes of their
-- envelopes, and whether there are more. ARGV: 3 item, 4 envelope, 5 its checksum without the position and times of
-- an entry, 6 'touch' if an erase that finds nothing must write, too.
if not s.active then return {0, 0, 0} end
local members = call('ZREVRANGEBYLEX', s.items, '[' .. build_member(ARGV[3], s.born),
  '[' .. build_member(ARGV[3], s.stop), 'LIMIT', 0, REMOVE_ENTRIES)

-- Compute everything first, so that nothing is written if something is damaged.
local rows, bytes, done = {}, 0, 0
for n, member in ipairs(members) do
  local position = parse_position(member)
  local row = position and call('ZRANGEBYSCORE', s.log, position, position)[1] or ''
  if index_row(row, position) ~= member then
    return build_error('its index of items does not match its log')
  end
  if bytes >= MEASURE_BYTES then break end
  local at, links_at, key_at, kind, batch, gen, written, deadline, keep = parse_row(row)
  local place = position + written + (deadline == '' and 0 or deadline) + gen + batch
  local words = {written, deadline, gen, whole(ARGV[5] + place), kind .. keep .. batch, links_at - key_at,
    '0', ''}
  rows[n] = table.concat(words, ' ') .. string.sub(row, key_at, links_at - 1) .. ARGV[4]
  bytes, done = bytes + #row - (at - 1), n
end
for n = 1, done do
  local position = parse_position(members[n])
  call('ZREMRANGEBYSCORE', s.log, position, position)
  call('ZADD', s.log, position, rows[n])
  call('ZREM', s.items, members[n])
end
if done > 0 then
  -- A log without other entries was removed and created again, without expiry.
  expire_one(s, s.log)
  s.counts[5] = count_part(s, 5)
  save_head(s)
else
  touch(ARGV[6])
end
return {done, bytes, (done < #members or done == REMOVE_ENTRIES) and 1 or 0}
