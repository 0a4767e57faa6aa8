-- Forget one snapshot; entries stay. ARGV: 3 id.
if not active() or call('HDEL', SNAPS, ARGV[3]) == 0 then return 0 end
save_head()
return 1
