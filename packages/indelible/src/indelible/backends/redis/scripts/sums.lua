-- Checksums against damage, as sums.py computes them too: 48 bits of SHA-1. A simulated server may
-- lack the function; it keeps nothing, so that nothing of it is checked.
local sha1hex = redis.sha1hex
local function digest(text)
  return sha1hex and string.sub(sha1hex(text), 1, 12) or '000000000000'
end

-- The checksum of a head: of its state, to which are added what most appends change.
local function sum_of_head(name, state, stop, deadline)
  return tonumber(digest(name .. '\n' .. state), 16) + stop + (deadline == '' and 0 or deadline)
end

-- Whether a head is as it was written: its state, end, deadline and checksum.
local function head_is_sound(name, head)
  local state, stop, deadline, sum = head[1], tonumber(head[2] or ''), head[3], head[4]
  return state and stop and sum and (deadline == '' or tonumber(deadline or ''))
    and tonumber(sum) == sum_of_head(name, state, stop, deadline)
end
