-- Remove the rest of a life that has ended, or a stage that will never be shown. ARGV: 3 life.
if not s.life or s.life ~= ARGV[3] or s.active then return {'changed'} end
local known = not s.staged and now < s.deadline + KNOWN_MS
call('UNLINK', unpack(KEYS, known and 2 or 1, 8))
return {'deleted'}
