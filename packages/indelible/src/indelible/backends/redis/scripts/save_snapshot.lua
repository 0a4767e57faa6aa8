-- Store the view and the log's end. If there is a snapshot with this id, or the version is another, answers with what
-- decides: the session, and the snapshot. ARGV: 3 id, 4 label (behind =, '' for none), 5 ttl, 6 the version
-- whose view was found to fit the limits, 7 'touch' if one that is found must be written for, 8 expected.
local there = s.active and read_snapshot(ARGV[3])
if broken then return broken end
local holds = not there and (ARGV[8] == '' or ARGV[8] == format_version(s))
-- Few extents always fit. With many, the caller computes whether they do, and comes again.
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
-- Text of the caller comes last, so that it may hold any character.
local record = table.concat({s.taken, now, s.stop, s.view[1], s.view[2]}, ' ') .. '|' .. ARGV[4]
s.counts[2] = s.counts[2] + call('HSET', s.snapshots, ARGV[3], seal(s, 's' .. ARGV[3], record))
expire_one(s, s.snapshots)
save_head(s)
return record
