-- Return which commands the user of the connection may not run, if the server says so (since 7.0). ARGV: the commands.
local denied = {}
for _, name in ipairs(ARGV) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(name, KEYS[1]) then denied[#denied + 1] = name end
end
return denied
