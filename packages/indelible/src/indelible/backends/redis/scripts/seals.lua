-- A value that carries its checksum, bound to its session, its life and its name.
local function seal(head, life, name, text)
  return digest(head .. '\n' .. life .. '\n' .. name .. '\n' .. text) .. ' ' .. text
end

-- The value without its checksum; nil if it is damaged.
local function unseal(head, life, name, value)
  local text = string.sub(value, 14)
  return seal(head, life, name, text) == value and text or nil
end

-- The checksum of a view, which is bound to its generation. `view` has the values of VIEW_FIELDS.
local function sum_of_view(name, life, gen, view)
  return digest(name .. '\n' .. life .. '\n' .. gen .. '\n' .. table.concat(view, '\n', 1, 6))
end

-- What is wrong with a view, or nil.
local function wrong_view(name, life, gen, view)
  if not view[1] then return 'its view is missing' end
  for n = 2, 7 do
    if not view[n] then return 'a part of its view is missing' end
  end
  if view[7] ~= sum_of_view(name, life, gen, view) then
    return 'its view does not match its checksum'
  end
end
