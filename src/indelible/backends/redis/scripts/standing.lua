-- All that decides what a vacuum may take: the session, its snapshots and its changes.
-- The lines of every number, also those that changed nothing, so that they can be told apart.
local head = describe()
local last, lines, snapshots = lines, {}, {}
if active() then
  snapshots = call('HGETALL', SNAPS)
  for number = last, 1, -1 do
    local operation = call('HGET', LINES, '#' .. number)
    if operation then
      lines[#lines + 1] = operation
      lines[#lines + 1] = call('HGET', LINES, 'o' .. operation)
      lines[#lines + 1] = call('HGET', LINES, 'u' .. operation)
    end
  end
end
return {head, snapshots, lines, call('XLEN', LOG)}
