-- Count entries and bytes in a range of the log, a portion at a time. With a life, also remove them, their members in
-- the index of items, and their keys, unless a vacuum kept these. ARGV: 3 start, 4 stop, 5 the life, or ''.
local at, last, removes = ARGV[3], '(' .. ARGV[4], ARGV[5] ~= ''
if removes and s.life ~= ARGV[5] then return {0, 0, false} end
local entries, bytes, most = 0, 0, removes and REMOVE_ENTRIES or READ_LOOKED
local unindexed, unkeyed = 0, 0

-- Remove the key of a row, if the index has its position, and not what a vacuum kept of it.
local function remove_key(row, position)
  local _, links_at, key_at = parse_row(row)
  local key = key_at and string.sub(row, key_at, links_at - 1) or ''
  local known = is_indexed(key) and call('HGET', s.used, key)
  if known and unseal(s, 'k' .. key, known) == position then unkeyed = unkeyed + call('HDEL', s.used, key) end
end

while entries < most and bytes < MEASURE_BYTES do
  local page = call('ZRANGEBYSCORE', s.log, at, last, 'WITHSCORES', 'LIMIT', 0, READ_PAGE)
  if #page == 0 then
    at = false
    break
  end
  for n = 1, #page, 2 do
    bytes = bytes + #page[n] - ((parse_row(page[n]) or 1) - 1)
    local member = removes and index_row(page[n], page[n + 1])
    if member then unindexed = unindexed + call('ZREM', s.items, member) end
    if removes then remove_key(page[n], page[n + 1]) end
  end
  entries = entries + #page / 2
  if removes then call('ZREMRANGEBYSCORE', s.log, at, page[#page]) end
  at = page[#page] + 1
end
if unindexed + unkeyed > 0 then
  s.counts[1], s.counts[5] = s.counts[1] - unkeyed, s.counts[5] - unindexed
  save_head(s)
end
return {entries, bytes, at}
