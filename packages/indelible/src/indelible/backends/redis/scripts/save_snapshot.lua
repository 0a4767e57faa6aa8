-- Write the view and the log's end down. ARGV: 3 id, 4 label (behind =, '' for none), 5 ttl,
-- 6 the state that was found to be whole enough, 7 touch.
if not active() then begin(ARGV[5]) end
local there = opened('s' .. ARGV[3], call('HGET', SNAPS, ARGV[3]), 'a snapshot')
if broken then return broken end
if there then
  if ARGV[7] == '1' then touch() end
  return {'there', there}
end
local tail, text = view[1], view[2]
local state = version()
-- Few pieces always fit. With many, the caller computes whether they do, and comes again.
if #text > TEXT_SMALL and ARGV[6] ~= state then
  return {'large', state, tail, text, whole(stop)}
end
snaps = snaps + 1
-- Joined, not formatted: Lua's %s ends at a zero byte, and a label may hold one.
local record = string.format('%.0f %.0f %.0f ', snaps, now, stop) .. tail .. ' ' .. text .. '|'
  .. ARGV[4]
call('HSET', SNAPS, ARGV[3], sealed('s' .. ARGV[3], record))
expire_one(SNAPS)
save_head()
return {'new', record}
