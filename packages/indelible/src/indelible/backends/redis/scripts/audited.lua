-- Wraps a script that is audited. The last of ARGV are the version that the line names ('' for none), how many
-- lines there are before it, and the line.
local all = ARGV
local known, lines, line, ARGV = all[#all - 2], tonumber(all[#all - 1]), all[#all], {}
for n = 1, #all - 3 do ARGV[n] = all[n] end
-- The prelude.
local counted = redis.pcall('LLEN', KEYS[9])
if type(counted) == 'table' then return counted end
if counted ~= lines or known ~= '' and known ~= format_version(load_session(1)) then
  return redis.error_reply('AUDIT moved')
end
local function run()
-- The script.
end
local answer = run()
if changed then call('RPUSH', KEYS[9], line) end
return answer
