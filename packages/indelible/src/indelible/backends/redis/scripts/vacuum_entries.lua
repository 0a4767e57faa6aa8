-- Remove a stretch of the log that nothing leads to. ARGV: 3 life, 4 first, 5 last, exclusive.
if s.life ~= ARGV[3] then return {0, 0, false} end
local at, last = tonumber(ARGV[4]), tonumber(ARGV[5])
local entries, bytes = 0, 0
while at < last do
  if entries >= REMOVE_ENTRIES or bytes >= MEASURE_BYTES then
    return {entries, bytes, whole(at)}
  end
  local page = call('XRANGE', s.log, whole(at + 1), whole(last), 'COUNT', READ_PAGE)
  if #page == 0 then break end
  local ids = {}
  for n, entry in ipairs(page) do
    ids[n] = entry[1]
    bytes = bytes + #(entry[2][8] or '')
  end
  call('XDEL', s.log, unpack(ids))
  entries = entries + #page
  at = tonumber(string.match(page[#page][1], '^%d+'))
end
return {entries, bytes, false}
