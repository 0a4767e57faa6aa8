-- Remove every key of a session, damaged or not. ARGV: 3 expected: then its version must be readable.
if ARGV[3] ~= '' then
  if s.wrong then return build_error(s.wrong) end
  if ARGV[3] ~= format_version(s) then return {'moved', format_version(s)} end
end
local snapshots = call('HLEN', s.snapshots)
changed = call('UNLINK', unpack(KEYS, 1, 8)) > 0
return {'erased', snapshots}
