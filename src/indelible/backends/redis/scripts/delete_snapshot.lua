-- Forget one snapshot; entries stay. ARGV: 3 id.
if not active() then return 0 end
return call('HDEL', SNAPS, ARGV[3])
