-- Begin a life that is not visible yet. ARGV: 3 forked from, 4 ttl, 5 first position ('' for the end of the log).
if s.active then return {'exists'} end
local refused = begin(s, ARGV[4], tonumber(ARGV[5]), ARGV[3], true)
if refused then return refused end
save_head(s)
return {'begun', s.life, s.born}
