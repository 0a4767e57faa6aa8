-- All that decides what a vacuum may take: the session, its snapshots and its changes.
-- The lines of every number, also those that changed nothing, so that they can be told apart.
local head = describe()
local changes, snapshots = {}, {}
if active() then
  snapshots = all_snapshots()
  for number = lines, 1, -1 do
    local operation, line, undone_by = line_at(number)
    if operation then
      changes[#changes + 1] = operation
      changes[#changes + 1] = line
      changes[#changes + 1] = undone_by
    end
  end
end
return broken or {head, snapshots, changes, call('XLEN', LOG)}
