-- How many entries and bytes a stretch of the log holds. ARGV: 3 first, 4 last, exclusive.
local at, last = tonumber(ARGV[3]), tonumber(ARGV[4])
local entries, bytes, looked = 0, 0, 0
while at < last do
  if looked >= READ_LOOKED or bytes >= MEASURE_BYTES then
    return {entries, bytes, whole(at)}
  end
  local page = call('XRANGE', s.log, whole(at + 1), whole(last), 'COUNT', READ_PAGE)
  if #page == 0 then break end
  for _, entry in ipairs(page) do bytes = bytes + #(entry[2][8] or '') end
  entries, looked = entries + #page, looked + #page
  at = tonumber(string.match(page[#page][1], '^%d+'))
end
return {entries, bytes, false}
