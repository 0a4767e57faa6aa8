-- Remove every key of a session, whatever is left of it.
local entries, snapshots = call('XLEN', s.log), call('HLEN', s.snapshots)
call('UNLINK', unpack(KEYS))
return {entries, snapshots}
