-- Store the view and the end of the log. If there is a snapshot with this id, or the version is not the expected one,
-- answers with the state that decides: the session and the snapshot. ARGV: 3 id, 4 label (behind =, '' for none), 5 ttl,
-- 6 the version whose view is known to be within the limits, 7 'touch' if a retry that finds its snapshot must write,
-- too, 8 expected version.
local there = s.active and read_snapshot(ARGV[3])
if broken then return broken end
local holds = not there and (ARGV[8] == '' or ARGV[8] == format_version(s))
-- A short view is always within the limits. The caller computes whether a longer one is, and calls again.
if s.active and #s.view[2] > TEXT_SMALL and ARGV[6] ~= format_version(s) then holds = false end
if not holds then
  if there then touch(ARGV[7]) end
  return {describe(s), there or false}
end
if not s.active then
  local refused = begin(s, ARGV[5])
  if refused then return refused end
  expire_keys(s, 0)
end
s.taken = s.taken + 1
-- Text of the caller comes last, since it may contain any character.
local record = table.concat({s.taken, now, s.stop, s.view[1], s.view[2]}, ' ') .. '|' .. ARGV[4]
s.counts[2] = s.counts[2] + call('HSET', s.snapshots, ARGV[3], seal(s, 's' .. ARGV[3], record))
expire_one(s, s.snapshots)
save_head(s)
return record
