-- Refuse to read entries of a session that lost what they are found by.
if is_orphaned() then return damaged('its head is missing') end
if active() then
  local what = missing_entries()
  if what then return damaged(what) end
end
