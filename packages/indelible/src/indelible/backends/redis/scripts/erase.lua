-- Remove every key of a session, damaged or not.
local snapshots = call('HLEN', s.snapshots)
changed = call('UNLINK', unpack(KEYS)) > 0
return snapshots
