-- Put entries at their positions in a stage. ARGV: 3 stage; then position, stamp, meta, key and
-- envelope of each, and its deadline.
if not life or not staged or life ~= ARGV[3] then return {'exists'} end
local newest = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)
local last = newest[1] and tonumber(string.match(newest[1][1], '^%d+')) or 0
-- The caller's key of the append that the entries belong to, which may have begun in another call.
local current = call('HGET', HEAD, 'keyed') or ''
for n = 4, #ARGV, 6 do
  local position, key = tonumber(ARGV[n]), ARGV[n + 3]
  -- What a lost reply left undone is done; what it did is there.
  if position + 1 > last then
    local stamp, meta, envelope = ARGV[n + 1], ARGV[n + 2], ARGV[n + 4]
    call('XADD', LOG, whole(position + 1) .. '-0', 't', stamp, 'm', meta, 'k', key, 'e', envelope)
    -- Keys of callers are indexed, as an append would have done, with the checksums of its entries.
    local sum = string.sub(envelope, SUM_FROM, SUM_TO)
    if key ~= '' then
      current = string.sub(key, 1, 1) ~= '~' and key or ''
      if current ~= '' then
        local size, made_in = string.match(meta, '^..(%d+)'), string.match(stamp, '^%d+ %d* (%d+)')
        local value = position .. ' ' .. size .. ' ' .. made_in .. ' ' .. sum
        call('HSET', USED, key, sealed('k' .. key, value))
      end
    elseif current ~= '' then
      local value = opened('k' .. current, call('HGET', USED, current), 'a key of its callers')
      if not value or broken then return damaged('a key of its callers is missing') end
      local first, size = string.match(value, '^(%d+) (%d+)')
      if position < first + size then
        call('HSET', USED, current, sealed('k' .. current, value .. sum))
      end
    end
    stop = math.max(stop, position + 1)
    deadline = ARGV[n + 5]
  end
end
save_head()
call('HSET', HEAD, 'keyed', current)
return {'staged'}
