-- The newest appends and what is known of their entries, newest first. ARGV: 3 from ('' for the
-- end), 4 entries wanted.
local last = ARGV[3] == '' and '+' or ARGV[3]
local rows, at = {}, false
local page = call('XREVRANGE', s.log, last, '-', 'COUNT', ARGV[4])
for _, entry in ipairs(page) do
  local fields, n = entry[2], #rows
  local position = tonumber(string.match(entry[1], '^%d+')) - 1
  rows[n + 1], rows[n + 2] = whole(position), string.match(fields[4] or '', '^..(%d+)') or '0'
  rows[n + 3], rows[n + 4] = string.match(fields[2] or '', '^%d+ %d* (%d+)') or '0', fields[6] or ''
  rows[n + 5] = string.sub(fields[8] or '', SUM_FROM, SUM_TO)
  at = position
end
return {rows, #page == tonumber(ARGV[4]) and at > 0 and whole(at)}
