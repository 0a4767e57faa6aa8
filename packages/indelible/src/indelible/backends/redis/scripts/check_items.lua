-- Compare the index of items with the log, a portion at a time. Returns where the next portion begins (false if
-- there is none), and the positions that do not match. ARGV: 3 'index' for members without their entries, or 'log'
-- for entries without their members, 4 where to begin ('' for the beginning).
local wrong, at = {}, ARGV[4]
if not s.active then return {false, wrong} end
for _ = 1, READ_LOOKED, READ_PAGE do
  local page
  if ARGV[3] == 'index' then
    page = call('ZRANGEBYLEX', s.items, at == '' and '-' or '(' .. at, '+', 'LIMIT', 0, READ_PAGE)
    for _, member in ipairs(page) do
      local position = parse_position(member) or LOG_MAX
      local row = call('ZRANGEBYSCORE', s.log, position, position)[1] or ''
      if index_row(row, position) ~= member then wrong[#wrong + 1] = position end
      at = member
    end
  else
    local from = at == '' and s.born or '(' .. at
    page = call('ZRANGEBYSCORE', s.log, from, '+inf', 'WITHSCORES', 'LIMIT', 0, READ_PAGE)
    for n = 1, #page, 2 do
      local member = index_row(page[n], page[n + 1])
      if member and not call('ZSCORE', s.items, member) then wrong[#wrong + 1] = page[n + 1] end
      at = page[n + 1]
    end
  end
  if #page == 0 then return {false, wrong} end
end
return {at, wrong}
