-- Remove every key of a session, damaged or not.
local snapshots = call('HLEN', s.snapshots)
call('UNLINK', unpack(KEYS))
return snapshots
