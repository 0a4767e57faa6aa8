-- Look at a session. ARGV[3]: count its snapshots.
local count = 0
if ARGV[3] == '1' and active() then count = call('HLEN', SNAPS) end
return {describe(), count}
