-- Remove what is left of a life that ended. ARGV: 3 life, 4 how long a stage may take.
if not life or life ~= ARGV[3] or active() then return {'changed'} end
if staged then
  local created = tonumber(call('HGET', VIEW, 'created') or 0)
  if now < created + tonumber(ARGV[4]) then return {'kept'} end
end
local known = not staged and now < tonumber(deadline) + KNOWN_MS
call('UNLINK', VIEW, LOG, USED, SNAPS, LINES, ASIDE)
if not known then call('UNLINK', HEAD) end
return {'buried'}
