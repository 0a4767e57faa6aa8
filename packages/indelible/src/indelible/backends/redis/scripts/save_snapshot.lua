-- Store the view and the log's end. ARGV: 3 id, 4 label (behind =, '' for none), 5 ttl, 6 the version
-- whose view was found to fit the limits, 7 touch, 8 expected.
if s.active then
  local there = read_snapshot(ARGV[3])
  if broken then return broken end
  if there then
    touch(ARGV[7])
    return {'there', there}
  end
end
if ARGV[8] ~= '' and ARGV[8] ~= format_version(s) then return {'moved', format_version(s)} end
if not s.active then
  local refused = begin(s, ARGV[5])
  if refused then return refused end
  expire_keys(s, 0)
end
local tail, text = s.view[1], s.view[2]
-- Few extents always fit. With many, the caller computes whether they do, and comes again.
if #text > TEXT_SMALL and ARGV[6] ~= format_version(s) then
  return {'large', format_version(s), tail, text, s.stop}
end
s.taken = s.taken + 1
-- Text of the caller comes last, so that it may hold any character.
local record = table.concat({s.taken, now, s.stop, tail, text}, ' ') .. '|'
  .. ARGV[4]
s.counts[2] = s.counts[2] + call('HSET', s.snapshots, ARGV[3], seal(s, 's' .. ARGV[3], record))
expire_one(s, s.snapshots)
save_head(s)
return {'new', record}
