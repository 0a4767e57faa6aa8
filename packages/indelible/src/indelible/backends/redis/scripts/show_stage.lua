-- Show all that was staged, at once. ARGV: 3 stage, 4 metadata, 5 tail ('' for all), 6 extents,
-- 7 generation, 8 created, 9 how many snapshots, then id and record of each; then how many lines,
-- and operation, line and undone by of each.
if not life or life ~= ARGV[3] then return {'exists'} end
if staged then
  local what = wrong_part()
  if what then return damaged(what) end
  gen, staged = tonumber(ARGV[7]), false
  view[1], view[2] = ARGV[5] == '' and whole(born) or ARGV[5], ARGV[6]
  if ARGV[8] ~= '' then view[3] = ARGV[8] end
  view[4] = ARGV[4]
  save_view({1, 2, 3, 4})
  local at = 10
  snaps = tonumber(ARGV[9])
  for _ = 1, snaps do
    call('HSET', SNAPS, ARGV[at], sealed('s' .. ARGV[at], ARGV[at + 1]))
    at = at + 2
  end
  lines = tonumber(ARGV[at])
  at = at + 1
  for number = 1, lines do
    local operation = ARGV[at]
    call('HSET', LINES, 'o' .. operation, sealed('o' .. operation, ARGV[at + 1]),
      '#' .. number, operation)
    if ARGV[at + 2] ~= '' then
      call('HSET', LINES, 'u' .. operation, sealed('u' .. operation, ARGV[at + 2]))
    end
    at = at + 3
  end
  expire_all()
  save_head()
end
return {'shown', describe()}
