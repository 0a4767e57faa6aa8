-- Delete one snapshot; entries stay. ARGV: 3 id.
if not s.active or call('HDEL', s.snapshots, ARGV[3]) == 0 then return 0 end
s.counts[2] = s.counts[2] - 1
save_head(s)
return 1
