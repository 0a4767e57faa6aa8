-- Add lines of an exported audit that are not there yet. Lines that are there must be equal, and no line before them
-- may be missing: otherwise returns 0. ARGV: 3 the number of the first line, and from 4 on the lines.
local first = tonumber(ARGV[3])
if call('LLEN', KEYS[9]) < first then return 0 end
local there = call('LRANGE', KEYS[9], first, first + #ARGV - 4)
for n, line in ipairs(there) do
  if line ~= ARGV[n + 3] then return 0 end
end
if #there < #ARGV - 3 then call('RPUSH', KEYS[9], unpack(ARGV, #there + 4)) end
return 1
