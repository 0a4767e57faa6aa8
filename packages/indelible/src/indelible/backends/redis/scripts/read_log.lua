-- The log itself, whether it shows or not. ARGV: 3 start, 4 rows wanted.
local head = describe()
if not is_active(s) then return {head, false, {}} end
local at = math.max(tonumber(ARGV[3]), s.born)
local page = call('XRANGE', s.log, whole(at + 1), '+', 'COUNT', ARGV[4])
local rows, bytes, more = {}, 0, #page == tonumber(ARGV[4])
for _, entry in ipairs(page) do
  if bytes >= READ_BYTES then
    more = true
    break
  end
  local fields, n = entry[2], #rows
  rows[n + 1] = whole(position_of(entry[1]))
  rows[n + 2], rows[n + 3] = fields[2] or '', fields[4] or ''
  rows[n + 4], rows[n + 5] = fields[6] or '', fields[8] or ''
  bytes = bytes + #rows[n + 5]
end
return broken or {head, more and '1', rows}
