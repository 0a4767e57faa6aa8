-- State that decides about an append whose guard did not hold: the session, the append with its key, and where
-- the newest visible entry of an item is. ARGV: 3 key, 4 fresh, 5 touch, 6 whether it needs the index of items,
-- 7 item, or ''.
local used, newest, wrong = false, false, nil
if ARGV[4] == '0' and s.active then
  wrong = find_wrong_parts(1, 1)
  if not wrong then used, wrong = find_key(s, ARGV[3]) end
  if wrong then return build_error(wrong) end
  if used then touch(ARGV[5]) end
end
if not used and s.active and ARGV[6] == '1' then
  wrong = find_wrong_parts(5, 5)
  if wrong then return build_error(wrong) end
  if ARGV[7] ~= '' then newest = find_newest(s, ARGV[7]) end
end
return {describe(), used or false, newest or false}
