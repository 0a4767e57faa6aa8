-- The snapshots of a life. ARGV: 3 whether all, then the ids of the named ones.
local described, records = describe(), {}
if is_active(s) and ARGV[3] == '1' then
  records = read_snapshots()
elseif is_active(s) then
  for n = 4, #ARGV do
    local record = read_snapshot(ARGV[n])
    if record then records[#records + 1], records[#records + 2] = ARGV[n], record end
  end
end
return broken or {described, records}
