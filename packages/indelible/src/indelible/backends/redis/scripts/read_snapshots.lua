-- The snapshots of a life. ARGV: 3 whether all, then the ids of the named ones.
local head = describe()
local records = {}
if active() then
  if ARGV[3] == '1' then
    records = all_snapshots()
  else
    for n = 4, #ARGV do
      local record = opened('s' .. ARGV[n], call('HGET', SNAPS, ARGV[n]), 'a snapshot')
      if record then
        records[#records + 1] = ARGV[n]
        records[#records + 1] = record
      end
    end
  end
end
return broken or {head, records}
