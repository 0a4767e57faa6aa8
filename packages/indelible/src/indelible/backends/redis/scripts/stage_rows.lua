-- Put entries at their positions in a stage. ARGV: 3 stage; then position, stamp, meta, key and
-- envelope of each, and its deadline.
if not s.staged or s.life ~= ARGV[3] then return {'exists'} end
local newest = call('XREVRANGE', s.log, '+', '-', 'COUNT', 1)
local last = newest[1] and tonumber(string.match(newest[1][1], '^%d+')) or 0
-- The caller's key of the append that the entries belong to, which may have begun in another call.
local current = call('HGET', s.head, 'keyed') or ''
for n = 4, #ARGV, 6 do
  local position, key = tonumber(ARGV[n]), ARGV[n + 3]
  -- What a lost reply left undone is done; what it did is there.
  if position + 1 > last then
    local stamp, meta, envelope = ARGV[n + 1], ARGV[n + 2], ARGV[n + 4]
    call('XADD', s.log, whole(position + 1) .. '-0', 't', stamp, 'm', meta, 'k', key, 'e', envelope)
    -- Keys of callers are indexed, as an append would have done, with the checksums of its entries.
    local sum = string.sub(envelope, SUM_FROM, SUM_TO)
    if key ~= '' then
      current = string.sub(key, 1, 1) ~= '~' and key or ''
      if current ~= '' then
        local size, gen = string.match(meta, '^..(%d+)'), string.match(stamp, '^%d+ %d* (%d+)')
        local value = whole(position) .. ' ' .. size .. ' ' .. gen .. ' ' .. sum
        call('HSET', s.used, key, seal(s, 'k' .. key, value))
      end
    elseif current ~= '' then
      local value = read_value('k' .. current, call('HGET', s.used, current), 'a key of its callers')
      if not value or broken then return damaged('a key of its callers is missing') end
      local first, size = string.match(value, '^(%d+) (%d+)')
      if position < first + size then
        call('HSET', s.used, current, seal(s, 'k' .. current, value .. sum))
      end
    end
    s.stop = math.max(s.stop, position + 1)
    s.deadline = ARGV[n + 5]
  end
end
s.counts[1] = count_part(1)
save_head(s)
call('HSET', s.head, 'keyed', current)
return {'staged'}
