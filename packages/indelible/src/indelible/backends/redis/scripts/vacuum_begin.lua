-- Begin a vacuum: afterwards nothing can make the entries visible that it will remove. ARGV: 3 life, 4 generation,
-- 5 vacuums, 6 whether entries are removed, 7 how many keys are kept, then name and value of each; then how many keys
-- are dropped that earlier vacuums kept, and their names; then the keys of the changes whose journal lines are removed.
if not s.active or s.life ~= ARGV[3] or s.gen ~= ARGV[4] or s.view[5] ~= ARGV[5] then
  return {'changed'}
end
local after_kept = 8 + 2 * ARGV[7]
local after_dropped = after_kept + 1 + ARGV[after_kept]
local gone = {}
for n = after_dropped, #ARGV do
  local line = read_change(ARGV[n])
  if line then gone[ARGV[n]] = string.match(line, '^%d+') end
end
local keep = {}
for n = 8, after_kept - 1, 2 do
  local text = read_value('k' .. ARGV[n], call('HGET', s.used, ARGV[n]), 'a key of its callers')
  -- What an earlier vacuum kept describes the whole append.
  if not text or not string.find(text, ' ', 1, true) then keep[ARGV[n]] = ARGV[n + 1] end
end
if broken then return broken end
if ARGV[6] == '1' then
  s.view[5] = s.view[5] + 1
  save_view(s, {5})
end
for key, text in pairs(keep) do
  call('HSET', s.used, key, seal(s, 'k' .. key, text))
end
for n = after_kept + 1, after_dropped - 1 do
  call('HDEL', s.used, ARGV[n])
end
for key, number in pairs(gone) do
  call('HDEL', s.journal, 'o' .. key, 'u' .. key, '#' .. number)
end
expire_one(s, s.used)
count_parts()
save_head(s)
return {'begun'}
