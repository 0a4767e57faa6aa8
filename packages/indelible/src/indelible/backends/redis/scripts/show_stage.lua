-- Make a stage visible. ARGV: 3 stage, 4 'touch' if a retry that finds it shown must write, too, 5 metadata, 6 tail
-- ('' to show everything), 7 extents, 8 generation, 9 creation time, 10 the number of lines of an imported audit,
-- then these; then the number of snapshots, and id and record of each; then the number of changes, and key, line and key
-- of what undid it of each.
if not s.life or s.life ~= ARGV[3] then return {'exists'} end
if s.staged then
  local wrong = find_wrong_entries(s) or find_wrong_parts(s, 1, 5)
  if wrong then return build_error(wrong) end
  local imported = tonumber(ARGV[10])
  local known = imported > 0 and call('LRANGE', KEYS[9], 0, imported - 1) or {}
  for n, line in ipairs(known) do
    if line ~= ARGV[10 + n] then return {'audit'} end
  end
  s.gen, s.staged = ARGV[8], false
  s.view[1], s.view[2] = ARGV[6] == '' and s.born or ARGV[6], ARGV[7]
  s.created = tonumber(ARGV[9]) or s.created
  s.activity = math.max(s.activity, s.created)
  s.view[3] = ARGV[5]
  save_view(s, {1, 2, 3})
  for n = #known + 1, imported do call('RPUSH', KEYS[9], ARGV[10 + n]) end
  local at = 12 + imported
  s.taken = tonumber(ARGV[at - 1])
  for _ = 1, s.taken do
    call('HSET', s.snapshots, ARGV[at], seal(s, 's' .. ARGV[at], ARGV[at + 1]))
    at = at + 2
  end
  s.lines = tonumber(ARGV[at])
  at = at + 1
  for number = 1, s.lines do
    local key = ARGV[at]
    call('HSET', s.journal, 'o' .. key, seal(s, 'o' .. key, ARGV[at + 1]), '#' .. number, key)
    if ARGV[at + 2] ~= '' then
      call('HSET', s.journal, 'u' .. key, seal(s, 'u' .. key, ARGV[at + 2]))
    end
    at = at + 3
  end
  expire_keys(s, 0)
  count_parts()
  save_head(s)
else
  touch(ARGV[4])
end
return {'shown', describe(s)}
