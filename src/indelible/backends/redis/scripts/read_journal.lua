-- The newest changes of the view, newest first; those that changed nothing are left out.
-- ARGV: 3 how many ('' for all).
local head = describe()
local last, lines = lines, {}
if active() then
  local left = tonumber(ARGV[3] == '' and 1e15 or ARGV[3])
  for number = last, 1, -1 do
    if left == 0 then break end
    local operation = call('HGET', LINES, '#' .. number)
    if operation then
      local line = call('HGET', LINES, 'o' .. operation)
      local before, after = string.match(line, '|(.*)|(.*)$')
      if before ~= after then
        lines[#lines + 1] = operation
        lines[#lines + 1] = line
        lines[#lines + 1] = call('HGET', LINES, 'u' .. operation)
        left = left - 1
      end
    end
  end
end
return {head, lines}
