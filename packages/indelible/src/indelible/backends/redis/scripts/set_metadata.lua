-- Replace a session's metadata. ARGV: 3 metadata, 4 expected, 5 ttl.
if ARGV[4] ~= '' and ARGV[4] ~= format_version(s) then return {'moved', format_version(s)} end
if not s.active then
  local refused = begin(s, ARGV[5])
  if refused then return refused end
  expire_keys(s, 0)
  save_head(s)
end
s.view[3] = ARGV[3]
save_view(s, {3})
return {'set', describe(s), count_part(s, 2)}
