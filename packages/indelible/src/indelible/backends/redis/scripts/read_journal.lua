-- The newest changes of the view, newest first. ARGV: 3 how many.
local described, changes = describe(), {}
if is_active(s) then changes = read_changes(tonumber(ARGV[3])) end
return broken or {described, changes}
