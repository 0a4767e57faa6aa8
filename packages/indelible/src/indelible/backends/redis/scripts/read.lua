-- Read rows of the log in one state, a portion at a time. Returns the session, where the next portion begins (false if
-- there is none), and position and row of each entry. A visible position without a row gets an empty one.
-- ARGV: 3 the life of a frozen view ('' for none), 4 extents ('' for what is visible now), 5 where to begin ('' for the
-- beginning, or, backwards, the end), 6 backwards, 7 rows wanted, 8 kinds wanted ('' for all), 9 whether rows begin with
-- the size of their envelope and end after its checksum.
local rows, count, bytes, looked = {}, 0, 0, 0
if not s.active or (ARGV[3] ~= '' and ARGV[3] ~= s.life) then return {describe(s), false, rows} end
local text, from, backwards, wanted = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local kinds, brief, shows_gaps = ARGV[8], ARGV[9] == '1', ARGV[3] ~= '' or ARGV[4] == ''
if text == '' then
  text = s.view[2]
  if tonumber(s.view[1]) < s.stop then text = text .. ';' .. s.view[1] .. ',' .. s.stop end
end

local marks = MARKS

-- Return the row to send; nil if it is of another kind.
local function convert(row)
  local at, _, _, kind = parse_row(row)
  if not at then return brief and '0 ' .. row or row end
  if kinds ~= '' and not string.find(kinds, kind, 1, true) then
    -- An entry with a damaged kind must not pass for one that was not asked for.
    local mark, starts = marks[kind], at + MARK_FROM - 1
    if mark and string.sub(row, starts, starts + #mark - 1) == mark then return nil end
  end
  return brief and #row - at + 1 .. ' ' .. string.sub(row, 1, at + SUM_TO - 1) or row
end

-- Add a row to the portion; returns false if the portion is full.
local function add_row(position, row)
  if count >= wanted or bytes >= READ_BYTES or looked >= READ_LOOKED then return false end
  looked = looked + 1
  if row ~= '' and (brief or kinds ~= '') then row = convert(row) end
  if row then
    rows[2 * count + 1], rows[2 * count + 2] = position, row
    count, bytes = count + 1, bytes + #row
  end
  return true
end

-- Read the rows of an extent; returns where the next portion begins, or nil if nothing of it is left.
local function read_extent(first, last)
  local at, stop, step = first, last, 1
  if backwards then at, stop, step = last - 1, first - 1, -1 end
  local after = backwards and 1 or 0
  while (stop - at) * step > 0 do
    local size = math.min(READ_PAGE, math.max(wanted - count, 16))
    local page
    if backwards then
      page = call('ZREVRANGEBYSCORE', s.log, at, first, 'WITHSCORES', 'LIMIT', 0, size)
    else
      page = call('ZRANGEBYSCORE', s.log, at, last - 1, 'WITHSCORES', 'LIMIT', 0, size)
    end
    -- The last page ends where the extent does.
    if #page < 2 * size then page[#page + 1], page[#page + 2] = false, stop end
    for n = 1, #page, 2 do
      local row, position = page[n], tonumber(page[n + 1])
      while shows_gaps and (position - at) * step > 0 do
        if not add_row(at, '') then return at + after end
        at = at + step
      end
      if row and not add_row(position, row) then return position + after end
      at = row and position + step or position
    end
  end
end

local extents, left_off = {}, nil
for first, last in string.gmatch(text, '(%d+),(%d+)') do
  first, last = tonumber(first), tonumber(last)
  if from and backwards then last = math.min(last, from) end
  if from and not backwards then first = math.max(first, from) end
  extents[#extents + 1] = {first, last}
end
for n = 1, #extents do
  left_off = read_extent(unpack(extents[backwards and #extents + 1 - n or n]))
  if left_off then break end
end
return {describe(s), left_off or false, rows}
