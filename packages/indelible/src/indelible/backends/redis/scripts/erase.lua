-- Remove every key of a session. It may be damaged, unless a version is expected. ARGV: 3 expected version,
-- 4 'touch' if one that finds nothing must write, too.
if ARGV[3] ~= '' then
  if s.wrong then return build_error(s.wrong) end
  if ARGV[3] ~= format_version(s) then return {'moved', format_version(s)} end
end
local snapshots = call('HLEN', s.snapshots)
changed = call('UNLINK', unpack(KEYS, 1, 8)) > 0
if not changed then
  touch(ARGV[4])
  call('UNLINK', s.head)
end
return {'erased', snapshots}
