-- Entries of one state, a portion at a time; the rest is asked for with the extents of the first.
-- ARGV: 3 life ('' for now), 4 extents, 5 from ('' for the end), 6 backwards, 7 rows wanted,
-- 8 kinds wanted ('' for all), 9 without bodies.
local head = describe()
if ARGV[3] ~= '' and (ARGV[3] ~= life or not active()) then return {head, '', false, {}} end
local text = ARGV[4]
if ARGV[3] == '' then
  text = ''
  if active() then
    local tail = tonumber(head[8] or 0)
    text = head[9] or ''
    if tail < stop then
      text = text .. (text == '' and '' or ';') .. string.format('%.0f,%.0f', tail, stop)
    end
  end
end

local wanted, kinds, outline = tonumber(ARGV[7]), ARGV[8], ARGV[9] == '1'
local rows, bytes, looked, left_off = {}, 0, 0, false

local function full()
  return #rows >= wanted * 4 or bytes >= READ_BYTES or looked >= READ_LOOKED
end

local function missing(position)
  local n = #rows
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = string.format('%.0f', position), '', '0', ''
  looked = looked + 1
end

local function take(position, fields)
  looked = looked + 1
  local meta, envelope = fields[4] or '', fields[8] or ''
  local kind = string.sub(meta, 1, 1)
  if kinds ~= '' and not string.find(kinds, kind, 1, true) then
    -- An entry whose kind was damaged must not pass for one that was not asked for.
    local mark = MARKS[kind]
    if mark and string.sub(envelope, MARK_FROM, MARK_FROM + #mark - 1) == mark then return end
  end
  local n = #rows
  rows[n + 1] = string.format('%.0f', position)
  if outline then
    rows[n + 2], rows[n + 3], rows[n + 4] = meta, tostring(#envelope), ''
  else
    rows[n + 2], rows[n + 3], rows[n + 4] = meta, fields[2] or '', envelope
    bytes = bytes + #envelope
  end
end

local function forwards(first, last)
  local at = first
  while at < last do
    if full() then return at end
    local size = math.min(last - at, READ_PAGE, math.max(wanted - #rows / 4, 16))
    local page = call('XRANGE', LOG, string.format('%.0f', at + 1), string.format('%.0f', last),
      'COUNT', size)
    for _, entry in ipairs(page) do
      local position = position_of(entry[1])
      while at < position do
        if full() then return at end
        missing(at)
        at = at + 1
      end
      if full() then return at end
      take(position, entry[2])
      at = position + 1
    end
    if #page < size then
      while at < last do
        if full() then return at end
        missing(at)
        at = at + 1
      end
    end
  end
  return nil
end

local function backwards(first, last)
  local at = last
  while at > first do
    if full() then return at end
    local size = math.min(at - first, READ_PAGE, math.max(wanted - #rows / 4, 16))
    local page = call('XREVRANGE', LOG, string.format('%.0f', at), string.format('%.0f', first + 1),
      'COUNT', size)
    for _, entry in ipairs(page) do
      local position = position_of(entry[1])
      while at - 1 > position do
        if full() then return at end
        missing(at - 1)
        at = at - 1
      end
      if full() then return at end
      take(position, entry[2])
      at = position
    end
    if #page < size then
      while at > first do
        if full() then return at end
        missing(at - 1)
        at = at - 1
      end
    end
  end
  return nil
end

local extents = {}
for first, last in string.gmatch(text, '(%d+),(%d+)') do
  extents[#extents + 1] = {tonumber(first), tonumber(last)}
end
local from = tonumber(ARGV[5])
if ARGV[6] == '1' then
  for n = #extents, 1, -1 do
    local first, last = extents[n][1], extents[n][2]
    if from and last > from then last = from end
    left_off = first < last and backwards(first, last)
    if left_off then break end
  end
else
  for n = 1, #extents do
    local first, last = extents[n][1], extents[n][2]
    if from and first < from then first = from end
    left_off = first < last and forwards(first, last)
    if left_off then break end
  end
end
if broken then return broken end
return {head, text, left_off and string.format('%.0f', left_off) or false, rows}
