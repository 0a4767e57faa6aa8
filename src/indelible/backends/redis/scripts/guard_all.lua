-- Refuse to work on a session that lost a key.
if is_orphaned() then return damaged('its head is missing') end
if active() then
  local what = missing_part()
  if what then return damaged(what) end
end
