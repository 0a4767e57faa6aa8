-- Show all that was staged, at once. ARGV: 3 stage, 4 metadata, 5 tail ('' for all), 6 extents,
-- 7 generation, 8 created, 9 how many snapshots, then id and record of each; then how many lines,
-- and operation, line and undone by of each.
if not life or life ~= ARGV[3] then return {'exists'} end
if staged then
  call('HSET', VIEW, 'metadata', ARGV[4], 'extents', ARGV[6], 'tail',
    ARGV[5] == '' and string.format('%.0f', born) or ARGV[5])
  if ARGV[8] ~= '' then call('HSET', VIEW, 'created', ARGV[8]) end
  gen, staged = tonumber(ARGV[7]), false
  local at = 10
  local snapshots = tonumber(ARGV[9])
  for _ = 1, snapshots do
    call('HSET', SNAPS, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  local lines = tonumber(ARGV[at])
  at = at + 1
  for number = 1, lines do
    call('HSET', LINES, 'o' .. ARGV[at], ARGV[at + 1], '#' .. number, ARGV[at])
    if ARGV[at + 2] ~= '' then call('HSET', LINES, 'u' .. ARGV[at], ARGV[at + 2]) end
    at = at + 3
  end
  call('HSET', HEAD, 'staged', '0', 'gen', ARGV[7], 'snaps', snapshots, 'lines', lines)
  -- Keys of callers are indexed, as an append would have done.
  local first, last = '-', nil
  while call('HGET', HEAD, 'keyed') do
    local page = call('XRANGE', LOG, first, '+', 'COUNT', 500)
    if #page == 0 then break end
    for _, entry in ipairs(page) do
      local key, meta = entry[2][6], entry[2][4]
      if key ~= '' and string.sub(key, 1, 1) ~= '~' then
        local size = tonumber(string.match(meta, '^..(%d+)'))
        local position = tonumber(string.match(entry[1], '^%d+')) - 1
        local sums = {}
        for _, each in ipairs(call('XRANGE', LOG, entry[1], string.format('%.0f', position + size))) do
          sums[#sums + 1] = string.sub(each[2][8], SUM_FROM, SUM_TO)
        end
        call('HSET', USED, key, string.format('%.0f %d %s %s', position, size,
          string.match(entry[2][2], '%d+$'), table.concat(sums)))
      end
    end
    last = page[#page][1]
    first = string.format('%.0f', tonumber(string.match(last, '^%d+')) + 1)
  end
  expire_all()
end
return {'shown', describe()}
