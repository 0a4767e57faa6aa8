-- Begin a vacuum: from here on nothing leads to what it takes. ARGV: 3 life, 4 generation,
-- 5 vacuums, 6 whether entries go, 7 how many keys are written down, then name and value of each;
-- then the operations whose lines go.
if not active() or life ~= ARGV[3] or whole(gen) ~= ARGV[4] or view[6] ~= ARGV[5] then
  return {'changed'}
end
local after_keys = 8 + 2 * tonumber(ARGV[7])
local gone = {}
for n = after_keys, #ARGV do
  local line = opened('o' .. ARGV[n], call('HGET', LINES, 'o' .. ARGV[n]), 'a line of its journal')
  if line then gone[ARGV[n]] = string.match(line, '^%d+') end
end
if broken then return broken end
if ARGV[6] == '1' then
  view[6] = whole(view[6] + 1)
  save_view({6})
end
for n = 8, after_keys - 1, 2 do
  call('HSETNX', USED, ARGV[n], sealed('k' .. ARGV[n], ARGV[n + 1]))
end
for operation, number in pairs(gone) do
  call('HDEL', LINES, 'o' .. operation, 'u' .. operation, '#' .. number)
end
expire_one(USED)
save_head()
return {'let go'}
