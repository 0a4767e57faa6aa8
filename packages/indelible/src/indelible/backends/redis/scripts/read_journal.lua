-- The newest changes of the view, newest first; those that changed nothing are left out.
-- ARGV: 3 how many ('' for all).
local head = describe()
local changes = {}
if active() then
  local left = tonumber(ARGV[3] == '' and 1e15 or ARGV[3])
  for number = lines, 1, -1 do
    if left == 0 then break end
    local operation, line, undone_by = line_at(number)
    if broken then return broken end
    if operation then
      local before, after = string.match(line, '|(.*)|(.*)$')
      if before ~= after then
        changes[#changes + 1] = operation
        changes[#changes + 1] = line
        changes[#changes + 1] = undone_by
        left = left - 1
      end
    end
  end
end
return {head, changes}
