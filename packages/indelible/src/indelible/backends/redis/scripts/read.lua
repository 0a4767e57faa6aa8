-- Entries of one state, a portion at a time; the rest is asked for with the extents of the first.
-- ARGV: 3 life ('' for now), 4 extents, 5 from ('' for the end), 6 backwards, 7 rows wanted,
-- 8 kinds wanted ('' for all), 9 without bodies.
local described, text = describe(), ARGV[4]
if ARGV[3] == '' then
  text = ''
  if is_active(s) then
    text = s.view[2]
    if tonumber(s.view[1]) < s.stop then
      text = text .. (text == '' and '' or ';') .. s.view[1] .. ',' .. whole(s.stop)
    end
  end
elseif ARGV[3] ~= s.life or not is_active(s) then
  return {described, false, {}}
end

local from, backwards, wanted = tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local kinds, outline = ARGV[8], ARGV[9] == '1'
-- Four values for each row: position, meta, stamp and envelope; in an outline the size for the stamp.
local rows, bytes, looked = {}, 0, 0

local function add_row(position, meta, stamp, envelope)
  local n = #rows
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = whole(position), meta, stamp, envelope
end

local function add_entry(position, fields)
  local meta, envelope = fields[4] or '', fields[8] or ''
  local kind = string.sub(meta, 1, 1)
  if kinds ~= '' and not string.find(kinds, kind, 1, true) then
    -- An entry whose kind was damaged must not pass for one that was not asked for.
    local mark = MARKS[kind]
    if mark and string.sub(envelope, MARK_FROM, MARK_FROM + #mark - 1) == mark then return end
  end
  if outline then
    add_row(position, meta, tostring(#envelope), '')
  else
    add_row(position, meta, fields[2] or '', envelope)
    bytes = bytes + #envelope
  end
end

-- Read [first, last); where the next portion goes on, or nil if there is nothing left of it.
local function read_extent(first, last)
  local at, step = first, 1
  if backwards then at, step = last - 1, -1 end
  while first <= at and at < last do
    local left = backwards and at - first + 1 or last - at
    local size = math.min(left, READ_PAGE, math.max(wanted - #rows / 4, 16))
    local page
    if backwards then
      page = call('XREVRANGE', s.log, whole(at + 1), whole(first + 1), 'COUNT', size)
    else
      page = call('XRANGE', s.log, whole(at + 1), whole(last), 'COUNT', size)
    end
    local n = 1
    while first <= at and at < last and (n <= #page or #page < size) do
      if #rows >= wanted * 4 or bytes >= READ_BYTES or looked >= READ_LOOKED then
        return backwards and at + 1 or at
      end
      if page[n] and position_of(page[n][1]) == at then
        add_entry(at, page[n][2])
        n = n + 1
      else
        add_row(at, '', '0', '')
      end
      looked, at = looked + 1, at + step
    end
  end
end

local extents = {}
for first, last in string.gmatch(text, '(%d+),(%d+)') do
  extents[#extents + 1] = {tonumber(first), tonumber(last)}
end
local left_off
for n = 1, #extents do
  local first, last = unpack(extents[backwards and #extents + 1 - n or n])
  if from and backwards then last = math.min(last, from) end
  if from and not backwards then first = math.max(first, from) end
  left_off = read_extent(first, last)
  if left_off then break end
end
return broken or {described, left_off and whole(left_off) or false, rows}
