-- Read the session and the replies of commands on its keys, in one state. ARGV: 3 what must be undamaged: 'none',
-- 'head', 'view' or 'all'; then for each command the number of its words, and the words: its name, the index of its key
-- in KEYS, and its arguments.
-- The command JOURNAL returns the changes of the view, newest first: number, key, sealed line and the sealed key of
-- what undid it. Its argument is a limit; with one, changes without effect are left out.
local wrong = s.wrong
if ARGV[3] == 'view' and s.active then
  wrong = wrong or load_view(s)
elseif ARGV[3] == 'all' and s.active then
  wrong = wrong or find_wrong_entries(s) or find_wrong_parts(s, 1, 5)
end
if wrong and ARGV[3] ~= 'none' then return build_error(wrong) end

local function read_journal(limit)
  local changes, fields = {}, s.life and s.counts[3]
  for number = s.lines or 0, 1, -1 do
    -- The lines before the last field were removed by a vacuum.
    if fields <= 0 or #changes == 4 * (limit or -1) then break end
    local key = call('HGET', s.journal, '#' .. number)
    if key then
      local line, undone_by = unpack(call('HMGET', s.journal, 'o' .. key, 'u' .. key))
      fields = fields - 2 - (undone_by and 1 or 0)
      local before, after = string.match(line or '', '^[^|]*|([^|]*)|([^|]*)')
      if not limit or not before or before ~= after then
        local n = #changes
        changes[n + 1], changes[n + 2], changes[n + 3], changes[n + 4] = number, key, line, undone_by
      end
    end
  end
  return changes
end

local answers, at = {describe(s)}, 4
while at < #ARGV do
  local words = tonumber(ARGV[at])
  local name, part = ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
  if name == 'JOURNAL' then
    answers[#answers + 1] = read_journal(words > 2 and tonumber(ARGV[at + 3]))
  else
    answers[#answers + 1] = call(name, part, unpack(ARGV, at + 3, at + words))
  end
  at = at + words + 1
end
return answers
