-- What decides about an append whose guard did not hold: the session, and the append with its key.
-- ARGV: 3 key, 4 fresh, 5 touch.
local used, wrong = false, nil
if ARGV[4] == '0' and s.active then
  wrong = find_wrong_parts(1, 1)
  if not wrong then used, wrong = find_key(s, ARGV[3]) end
  if wrong then return build_error(wrong) end
  if used then touch(ARGV[5]) end
end
return {describe(), used or false}
