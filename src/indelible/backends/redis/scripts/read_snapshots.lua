-- The snapshots of a life. ARGV: 3 whether all, then the ids of the named ones.
local head = describe()
local found = {}
if active() then
  if ARGV[3] == '1' then
    found = call('HGETALL', SNAPS)
  else
    for n = 4, #ARGV do
      local record = call('HGET', SNAPS, ARGV[n])
      if record then
        found[#found + 1] = ARGV[n]
        found[#found + 1] = record
      end
    end
  end
end
return {head, found}
