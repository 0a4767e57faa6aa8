-- Put rows at their positions in a stage. ARGV: 3 stage; then position, row, deadline, key, size and
-- generation of its append (for a key of a caller), and the checksum of its envelope, of each.
if not s.staged or s.life ~= ARGV[3] then return {'exists'} end
-- The caller's key of the append that the entries belong to, which may have begun in another call.
local current = call('HGET', s.head, 'keyed') or ''
for n = 4, #ARGV, 6 do
  local position, row, deadline, key, about, sum = unpack(ARGV, n, n + 5)
  -- Rows of an earlier attempt, whose reply was lost, are there already.
  if tonumber(position) >= s.stop then
    call('ZADD', s.log, position, row)
    local member = index_row(row, position)
    if member then s.counts[5] = s.counts[5] + call('ZADD', s.items, 0, member) end
    -- Keys of callers are indexed, as an append would have done, with the checksums of its entries.
    if key ~= '' then
      current = string.sub(key, 1, 1) ~= '~' and key or ''
      if current ~= '' then
        call('HSET', s.used, key, seal(s, 'k' .. key, position .. ' ' .. about .. ' ' .. sum))
      end
    elseif current ~= '' then
      local value = read_value('k' .. current, call('HGET', s.used, current), 'a key of its callers')
      if not value or broken then return build_error('a key of its callers is missing') end
      local first, size = string.match(value, '^(%d+) (%d+)')
      if tonumber(position) < first + size then
        call('HSET', s.used, current, seal(s, 'k' .. current, value .. sum))
      end
    end
    s.stop, s.deadline = position + 1, deadline
    s.activity = math.max(s.activity, tonumber(string.match(row, '^%d+')))
  end
end
s.counts[1] = count_part(1)
save_head(s)
call('HSET', s.head, 'keyed', current)
return {'staged'}
