-- Begin a life that nobody sees yet. ARGV: 3 forked from, 4 ttl, 5 first ('' for the end).
if active() then return {'exists'} end
begin(ARGV[4], tonumber(ARGV[5]), ARGV[3], true)
return {'begun', life, string.format('%.0f', born)}
