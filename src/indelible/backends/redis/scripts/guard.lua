-- What is missing of a session that is there, or nil. Needs the prelude.
-- Nothing is left out by mistake: the engine frees the other keys only when the deadline has passed,
-- and the head long after them. So a part without its head was never left behind by an expiry.
local function missing_entries()
  if call('EXISTS', VIEW) == 0 then return 'its view is missing' end
  if stop > born and call('EXISTS', LOG) == 0 then return 'its log is missing' end
end

local function missing_part()
  local what = missing_entries()
  if what then return what end
  if #call('XRANGE', LOG, whole(stop + 1), '+', 'COUNT', 1) > 0 then
    return 'its head is older than its log'
  end
  if call('HLEN', USED) ~= tonumber(found[10]) then return 'keys of its callers are missing' end
  if call('HLEN', SNAPS) ~= tonumber(found[11]) then return 'snapshots are missing' end
  if call('HLEN', LINES) ~= tonumber(found[12]) then return 'lines of its journal are missing' end
  if call('HLEN', ASIDE) ~= tonumber(found[13]) then return 'its quarantine is missing' end
end

local function is_orphaned()
  return not life and call('EXISTS', VIEW, LOG, USED, SNAPS, LINES, ASIDE) > 0
end
