-- Replace the view, if it is still the one that the change was computed from. Otherwise answers with the state that
-- decides: the session, the line of the change with this key, the key of what undid it, and the snapshot.
-- ARGV: 3 life, 4 generation, 5 vacuums, 6 change, 7 key, 8 extents, 9 tail ('' for the end of the log), 10 expected
-- version, 11 key of the change that this undoes, 12 'touch' if a retry that finds its key must write, too, 13 the
-- snapshot to roll back to ('' for none).
local change, key, text, tail = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9]) or s.stop
local done, undone_by, record = false, false, false
if s.active then
  done, undone_by = read_change(key)
  record = ARGV[13] ~= '' and read_snapshot(ARGV[13])
  if broken then return broken end
end
local holds = s.active and not done and (ARGV[10] == '' or ARGV[10] == format_version(s))
if ARGV[13] == '' then
  holds = holds and s.life == ARGV[3] and s.gen == ARGV[4] and s.view[5] == ARGV[5]
elseif record then
  -- The view of the snapshot, with its tail closed at the end of the log.
  local last, from, extents = string.match(record, '^%d+ %d+ (%d+) (%d+) ([^|]*)|')
  text = extents
  if from ~= last then text = text .. (text == '' and '' or ';') .. from .. ',' .. last end
end
-- A view lies inside of the log, in order.
local at = s.born
for first, last in string.gmatch(text, '(%d+),(%d+)') do
  holds = holds and tonumber(first) >= at and tonumber(last) > tonumber(first)
  at = tonumber(last)
end
holds = holds and at <= s.stop and tail >= s.born and tail <= s.stop and (record or ARGV[13] == '')
if not holds then
  if done then touch(ARGV[12]) end
  return {describe(s), done, undone_by, record}
end
-- In normal form, a last extent that reaches the tail is part of it.
local first, last = string.match(text, '(%d+),(%d+)$')
if last and tonumber(last) >= tail then
  tail = math.min(tonumber(first), tail)
  text = string.gsub(text, ';?%d+,%d+$', '')
end
local before, after = s.view[1] .. ' ' .. s.view[2], tail .. ' ' .. text
s.lines, s.gen = s.lines + 1, whole(s.gen + 1)
s.view[1], s.view[2] = tail, text
save_view(s, {1, 2})
-- Text of the caller comes last, since it may contain any character.
local line = table.concat({s.lines, now, s.gen, s.stop}, ' ')
  .. '|' .. before .. '|' .. after .. '|' .. change
local added = call('HSET', s.journal, 'o' .. key, seal(s, 'o' .. key, line), '#' .. s.lines, key)
if ARGV[11] ~= '' and call('HEXISTS', s.journal, 'o' .. ARGV[11]) == 1 then
  added = added + call('HSET', s.journal, 'u' .. ARGV[11], seal(s, 'u' .. ARGV[11], key))
end
expire_one(s, s.journal)
s.counts[3] = s.counts[3] + added
save_head(s)
return {s.life, line}
