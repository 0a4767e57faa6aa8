-- Remove what is left of a life that ended. ARGV: 3 life, 4 how long a stage may take ('' if it will
-- never be shown).
if not s.life or s.life ~= ARGV[3] or s.active then return {'changed'} end
if s.staged and ARGV[4] ~= '' then
  if now < s.created + ARGV[4] then return {'kept'} end
end
local known = not s.staged and now < s.deadline + KNOWN_MS
call('UNLINK', unpack(KEYS, known and 2 or 1))
return {'deleted'}
