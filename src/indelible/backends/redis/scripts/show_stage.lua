-- Show all that was staged, at once. ARGV: 3 stage, 4 metadata, 5 tail ('' for all), 6 extents,
-- 7 generation, 8 created, 9 how many snapshots, then id and record of each; then how many lines,
-- and operation, line and undone by of each.
if not life or life ~= ARGV[3] then return {'exists'} end
if staged then
  local what = missing_part()
  if what then return damaged(what) end
  call('HSET', VIEW, 'metadata', ARGV[4], 'extents', ARGV[6], 'tail',
    ARGV[5] == '' and string.format('%.0f', born) or ARGV[5])
  if ARGV[8] ~= '' then call('HSET', VIEW, 'created', ARGV[8]) end
  gen, staged = tonumber(ARGV[7]), false
  local at = 10
  snaps = tonumber(ARGV[9])
  for _ = 1, snaps do
    call('HSET', SNAPS, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  lines = tonumber(ARGV[at])
  at = at + 1
  for number = 1, lines do
    call('HSET', LINES, 'o' .. ARGV[at], ARGV[at + 1], '#' .. number, ARGV[at])
    if ARGV[at + 2] ~= '' then call('HSET', LINES, 'u' .. ARGV[at], ARGV[at + 2]) end
    at = at + 3
  end
  expire_all()
  save_head()
end
return {'shown', describe()}
