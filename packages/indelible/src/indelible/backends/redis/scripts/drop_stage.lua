-- Remove a stage that will never be shown; one that was taken over is left alone. ARGV: 3 stage.
if s.staged and s.life == ARGV[3] then call('UNLINK', unpack(KEYS)) end
return {'dropped'}
