-- Begin a vacuum: from here on nothing leads to what it takes. ARGV: 3 life, 4 generation,
-- 5 vacuums, 6 whether entries go, 7 how many keys are written down, then name and value of each;
-- then the operations whose lines go.
local vacuums = call('HGET', VIEW, 'vacuums')
if not active() or life ~= ARGV[3] or string.format('%.0f', gen) ~= ARGV[4] or vacuums ~= ARGV[5] then
  return {'changed'}
end
if ARGV[6] == '1' then call('HINCRBY', VIEW, 'vacuums', 1) end
local at = 8
for _ = 1, tonumber(ARGV[7]) do
  call('HSETNX', USED, ARGV[at], ARGV[at + 1])
  at = at + 2
end
for n = at, #ARGV do
  local line = call('HGET', LINES, 'o' .. ARGV[n])
  if line then
    call('HDEL', LINES, 'o' .. ARGV[n], 'u' .. ARGV[n], '#' .. string.match(line, '^%d+'))
  end
end
expire_one(USED)
save_head()
return {'let go'}
