-- Keep bytes of entries that cannot be read. ARGV: position, then reason and bytes, of each.
if not active() then return {'kept'} end
for n = 3, #ARGV, 3 do
  call('HSETNX', ASIDE, ARGV[n], sealed('q' .. ARGV[n], ARGV[n + 1] .. '\n' .. ARGV[n + 2]))
end
expire_one(ASIDE)
save_head()
return {'kept'}
