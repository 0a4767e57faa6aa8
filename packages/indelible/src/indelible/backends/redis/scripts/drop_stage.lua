-- Remove a stage that will never be shown; one that was taken over is left alone. ARGV: 3 stage.
if life and staged and life == ARGV[3] then
  call('UNLINK', HEAD, VIEW, LOG, USED, SNAPS, LINES, ASIDE)
end
return {'dropped'}
