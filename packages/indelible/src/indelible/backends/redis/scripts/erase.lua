-- Remove every key of a session, whatever is left of it.
local snapshots = call('HLEN', s.snapshots)
call('UNLINK', unpack(KEYS))
return snapshots
