-- Write rows at their positions in a stage. ARGV: 3 stage; then position and row of each.
if not s.staged or s.life ~= ARGV[3] then return {'exists'} end
for n = 4, #ARGV, 2 do
  local position, row = ARGV[n], ARGV[n + 1]
  -- Rows of an earlier attempt whose reply was lost are there already.
  if tonumber(position) >= s.stop then
    call('ZADD', s.log, position, row)
    local member = index_row(row, position)
    if member then s.counts[5] = s.counts[5] + call('ZADD', s.items, 0, member) end
    local _, links_at, key_at, _, _, _, written, deadline = parse_row(row)
    local key = string.sub(row, key_at, links_at - 1)
    if key ~= '' and is_indexed(key) then
      s.counts[1] = s.counts[1] + call('HSET', s.used, key, seal(s, 'k' .. key, position))
    end
    s.stop, s.deadline, s.activity = position + 1, deadline, tonumber(written)
  end
end
save_head(s)
return {'staged'}
