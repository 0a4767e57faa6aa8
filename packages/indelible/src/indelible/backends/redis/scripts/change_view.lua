-- Show something else, if the view is still the one that was looked at.
-- ARGV: 3 life, 4 generation, 5 vacuums, 6 change, 7 operation, 8 extents, 9 tail ('' for the end),
-- 10 expected, 11 undoes, 12 touch, 13 the snapshot to go back to, whatever the session shows now.
local operation = ARGV[7]
local is_active = active()
if is_active then
  local what = 'a line of its journal'
  local done = opened('o' .. operation, call('HGET', LINES, 'o' .. operation), what)
  local undone_by = opened('u' .. operation, call('HGET', LINES, 'u' .. operation), what)
  if broken then return broken end
  if done then
    if ARGV[12] == '1' then touch() end
    return {'done', life, done, undone_by}
  end
end
local generation = whole(gen)
local text, snapshot = ARGV[8], ARGV[13]
if not is_active or not (snapshot or life == ARGV[3]) then return {'changed', generation} end
if snapshot then
  local record = opened('s' .. snapshot, call('HGET', SNAPS, snapshot), 'the snapshot')
  if broken then return broken end
  if not record then return {'changed', generation} end
  -- What it showed, with its tail up to where the log ended then.
  local last, from, extents = string.match(record, '^%d+ %d+ (%d+) (%d+) ([^|]*)|')
  text = extents
  if tonumber(from) > tonumber(last) then return {'outside'} end
  if tonumber(from) < tonumber(last) then
    text = text .. (text == '' and '' or ';') .. from .. ',' .. last
  end
end
if ARGV[10] ~= '' and ARGV[10] ~= version() then return {'moved', version()} end
if not snapshot and (generation ~= ARGV[4] or view[6] ~= ARGV[5]) then
  return {'changed', generation}
end

local tail = ARGV[9] == '' and stop or tonumber(ARGV[9])
-- A view lies inside of the log, in order; a damaged one is not followed.
local at = born
for first, last in string.gmatch(text, '(%d+),(%d+)') do
  if tonumber(first) < at or tonumber(last) <= tonumber(first) then return {'outside'} end
  at = tonumber(last)
end
if at > stop or tail < born or tail > stop then return {'outside'} end
-- In normal form a last extent that reaches the tail is part of it.
local first, last = string.match(text, '(%d+),(%d+)$')
if last and tonumber(last) >= tail then
  tail = math.min(tonumber(first), tail)
  text = string.gsub(text, ';?%d+,%d+$', '')
end
local after = tail .. ' ' .. text
local before = view[1] .. ' ' .. view[2]
lines, gen = lines + 1, gen + 1
view[1], view[2] = whole(tail), text
save_view({1, 2})
local line = lines .. ' ' .. ARGV[6] .. ' ' .. whole(now) .. ' ' .. whole(gen) .. ' ' .. whole(stop) .. '|' .. before
  .. '|' .. after
call('HSET', LINES, 'o' .. operation, sealed('o' .. operation, line), '#' .. lines, operation)
if ARGV[11] ~= '' then
  call('HSET', LINES, 'u' .. ARGV[11], sealed('u' .. ARGV[11], operation))
end
expire_one(LINES)
save_head()
return {'new', life, line, false}
