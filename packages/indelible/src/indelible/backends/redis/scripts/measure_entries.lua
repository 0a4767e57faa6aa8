-- How many entries and bytes a stretch of the log holds, a portion at a time; with a life, they are
-- removed from it and from the index of items. ARGV: 3 first, 4 last, exclusive, 5 the life to remove
-- them from, or ''.
local at, last, removes = ARGV[3], '(' .. ARGV[4], ARGV[5] ~= ''
if removes and s.life ~= ARGV[5] then return {0, 0, false} end
local entries, bytes, unindexed, most = 0, 0, 0, removes and REMOVE_ENTRIES or READ_LOOKED
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
  end
  entries = entries + #page / 2
  if removes then call('ZREMRANGEBYSCORE', s.log, at, page[#page]) end
  at = page[#page] + 1
end
if unindexed > 0 then
  s.counts[5] = s.counts[5] - unindexed
  save_head(s)
end
return {entries, bytes, at}
