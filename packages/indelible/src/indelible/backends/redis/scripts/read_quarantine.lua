-- What was put into quarantine.
local kept = call('HGETALL', s.aside)
for n = 1, #kept, 2 do kept[n + 1] = read_value('q' .. kept[n], kept[n + 1], 'its quarantine') end
return broken or kept
