-- Keep the bytes of entries that cannot be read. Those that are kept already are no change. ARGV from 3 on: position, reason and bytes of each.
if not s.active then return {'kept'} end
local added = 0
for n = 3, #ARGV, 3 do
  local reason = ARGV[n + 1]
  local value = seal(s, 'q' .. ARGV[n], #reason .. ' ' .. reason .. ARGV[n + 2])
  added = added + call('HSETNX', s.quarantine, ARGV[n], value)
end
if added > 0 then
  expire_one(s, s.quarantine)
  s.counts[4] = s.counts[4] + added
  save_head(s)
else
  touch('touch')
end
return {'kept'}
