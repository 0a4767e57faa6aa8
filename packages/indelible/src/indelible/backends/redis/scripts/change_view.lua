-- Replace the view, if it is still the one that the change was computed from.
-- ARGV: 3 life, 4 generation, 5 vacuums, 6 change, 7 key, 8 extents, 9 tail ('' for the end),
-- 10 expected, 11 undoes, 12 touch, 13 the snapshot to roll back to.
local change, key, text, snapshot = ARGV[6], ARGV[7], ARGV[8], ARGV[13]
if not s.active then return {'changed'} end
local done, undone_by = read_change(key)
if broken then return broken end
if done then
  touch(ARGV[12])
  return {'done', s.life, done, undone_by}
end
if snapshot then
  local record = read_snapshot(snapshot)
  if broken then return broken end
  if not record then return {'changed'} end
  -- The view of the snapshot, with its tail closed at the end of the log.
  local last, from, extents = string.match(record, '^%d+ %d+ (%d+) (%d+) ([^|]*)|')
  text = extents
  if tonumber(from) > tonumber(last) then return {'outside'} end
  if tonumber(from) < tonumber(last) then
    text = text .. (text == '' and '' or ';') .. from .. ',' .. last
  end
elseif s.life ~= ARGV[3] then
  return {'changed'}
end
if ARGV[10] ~= '' and ARGV[10] ~= format_version(s) then return {'moved', format_version(s)} end
if not snapshot and (s.gen ~= ARGV[4] or s.view[5] ~= ARGV[5]) then return {'changed'} end

local tail = ARGV[9] == '' and s.stop or tonumber(ARGV[9])
-- A view lies inside of the log, in order; a damaged one is not followed.
local at = s.born
for first, last in string.gmatch(text, '(%d+),(%d+)') do
  if tonumber(first) < at or tonumber(last) <= tonumber(first) then return {'outside'} end
  at = tonumber(last)
end
if at > s.stop or tail < s.born or tail > s.stop then return {'outside'} end
-- In normal form a last extent that reaches the tail is part of it.
local first, last = string.match(text, '(%d+),(%d+)$')
if last and tonumber(last) >= tail then
  tail = math.min(tonumber(first), tail)
  text = string.gsub(text, ';?%d+,%d+$', '')
end
local before, after = s.view[1] .. ' ' .. s.view[2], tail .. ' ' .. text
s.lines, s.gen = s.lines + 1, whole(s.gen + 1)
s.view[1], s.view[2] = tail, text
save_view(s, {1, 2})
-- Text of the caller comes last, so that it may hold any character.
local line = table.concat({s.lines, now, s.gen, s.stop}, ' ')
  .. '|' .. before .. '|' .. after .. '|' .. change
local added = call('HSET', s.journal, 'o' .. key, seal(s, 'o' .. key, line), '#' .. s.lines, key)
if ARGV[11] ~= '' and call('HEXISTS', s.journal, 'o' .. ARGV[11]) == 1 then
  added = added + call('HSET', s.journal, 'u' .. ARGV[11], seal(s, 'u' .. ARGV[11], key))
end
expire_one(s, s.journal)
s.counts[3] = s.counts[3] + added
save_head(s)
return {'new', s.life, line, false}
