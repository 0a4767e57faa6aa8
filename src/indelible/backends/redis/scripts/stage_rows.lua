-- Put entries at their positions in a stage. ARGV: 3 stage; then position, stamp, meta, key and
-- envelope of each, and its deadline.
if not life or not staged or life ~= ARGV[3] then return {'exists'} end
local newest = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)
local last = newest[1] and tonumber(string.match(newest[1][1], '^%d+')) or 0
for n = 4, #ARGV, 6 do
  local position = tonumber(ARGV[n])
  -- What a lost reply left undone is done; what it did is there.
  if position + 1 > last then
    call('XADD', LOG, string.format('%.0f-0', position + 1), 't', ARGV[n + 1], 'm', ARGV[n + 2],
      'k', ARGV[n + 3], 'e', ARGV[n + 4])
    stop = math.max(stop, position + 1)
    if ARGV[n + 3] ~= '' and string.sub(ARGV[n + 3], 1, 1) ~= '~' then
      call('HSET', HEAD, 'keyed', '1')
    end
    deadline = ARGV[n + 5]
  end
end
call('HSET', HEAD, 'end', string.format('%.0f', stop), 'deadline', deadline)
return {'staged'}
