-- Remove every key of a session.
local entries, snapshots = call('XLEN', LOG), call('HLEN', SNAPS)
call('UNLINK', HEAD, VIEW, LOG, USED, SNAPS, LINES, ASIDE)
return {entries, snapshots, life and '1'}
