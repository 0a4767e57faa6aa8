-- Replace a session's metadata. Answers with the session and the number of its snapshots, which is false if the
-- version or the metadata is not the expected one. ARGV: 3 metadata, 4 expected version, 5 ttl, 6 expected metadata.
if ARGV[4] ~= '' and ARGV[4] ~= format_version(s) then return {describe(s), false} end
if ARGV[6] ~= '' and ARGV[6] ~= (s.active and s.view[3] or '{}') then return {describe(s), false} end
if not s.active then
  local refused = begin(s, ARGV[5])
  if refused then return refused end
  expire_keys(s, 0)
  save_head(s)
end
s.view[3] = ARGV[3]
save_view(s, {3})
return {describe(s), count_part(s, 2)}
