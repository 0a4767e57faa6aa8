-- Which values of a hash are damaged, a portion at a time. ARGV: 3 which of KEYS, 4 its letter ('' if
-- its names begin with theirs), 5 where to go on.
local scanned = call('HSCAN', KEYS[tonumber(ARGV[3])], ARGV[5], 'COUNT', READ_PAGE)
local wrong = {}
for n = 1, #scanned[2], 2 do
  local name, value = scanned[2][n], scanned[2][n + 1]
  -- Numbers of journal lines lead to keys, and are checked where a line is looked for.
  local is_number = ARGV[4] == '' and string.sub(name, 1, 1) == '#'
  if not is_number and not (s.life and unseal(s, ARGV[4] .. name, value)) then
    wrong[#wrong + 1] = name
  end
end
return {scanned[1], wrong}
