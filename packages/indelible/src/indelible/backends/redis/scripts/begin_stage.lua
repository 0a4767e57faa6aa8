-- Begin a life that nobody sees yet. ARGV: 3 forked from, 4 ttl, 5 first ('' for the end).
if is_active(s) then return {'exists'} end
local refused = begin(s, ARGV[4], tonumber(ARGV[5]), ARGV[3], true)
if refused then return refused end
save_head(s)
return {'begun', s.life, whole(s.born)}
