-- Replace a session's metadata. ARGV: 3 metadata, 4 expected, 5 ttl.
if ARGV[4] ~= '' and ARGV[4] ~= version() then return {'moved', version()} end
if not active() then begin(ARGV[5]) end
view[4] = ARGV[3]
save_view({4})
return {'set', describe(), call('HLEN', SNAPS)}
