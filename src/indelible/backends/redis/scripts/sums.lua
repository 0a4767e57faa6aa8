-- Checksums against damage, as sums.py computes them too: 48 bits of SHA-1. A simulated server may
-- lack the function; it keeps nothing, so that nothing of it is checked.
local function digest(...)
  if not redis.sha1hex then return '000000000000' end
  return string.sub(redis.sha1hex(table.concat({...}, '\n')), 1, 12)
end

-- Of a head without its end and its deadline, which most appends change: these are added to it.
-- `head` has the values of its fields in the order of HEAD_FIELDS, as text.
local function base_of(name, head)
  return tonumber(digest(name, unpack(head, 1, 11)), 16)
end

-- Whether a head is as it was written. Fields: 12 end, 13 deadline, 14 sum.
local function head_is_sound(name, head)
  for n = 1, 14 do
    if not head[n] then return false end
  end
  local stop, deadline = tonumber(head[12]), head[13] == '' and 0 or tonumber(head[13])
  return stop and deadline and tonumber(head[14]) == base_of(name, head) + stop + deadline
end

-- A value that carries its checksum, bound to its session, its life and its name.
local function seal(head, life, name, text)
  return digest(head, life, name, text) .. ' ' .. text
end

-- The value without its checksum; nil if it is damaged.
local function unseal(head, life, name, value)
  local text = string.sub(value, 14)
  return seal(head, life, name, text) == value and text or nil
end
