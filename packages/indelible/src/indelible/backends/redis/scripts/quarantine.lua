-- Keep the bytes of entries that cannot be read. ARGV from 3 on: position, reason and bytes of each.
if not s.active then return {'kept'} end
for n = 3, #ARGV, 3 do
  local reason = ARGV[n + 1]
  call('HSETNX', s.quarantine, ARGV[n], seal(s, 'q' .. ARGV[n], #reason .. ' ' .. reason .. ARGV[n + 2]))
end
expire_one(s, s.quarantine)
s.counts[4] = count_part(s, 4)
save_head(s)
return {'kept'}
