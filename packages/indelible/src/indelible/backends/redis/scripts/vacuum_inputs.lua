-- All that decides what a vacuum may take: the session, its snapshots and every change of its view,
-- also those that changed nothing.
local described, snapshots, changes = describe(), {}, {}
if is_active(s) then snapshots, changes = read_snapshots(), read_changes() end
return broken or {described, snapshots, changes, call('XLEN', s.log)}
