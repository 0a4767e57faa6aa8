-- What an audited script has around it: the guard of its line, and the line. The last of KEYS is the list of
-- the audit; the last of ARGV are the version that the line names ('' if it names none), how many lines there
-- are, and the line.
local audit, line, lines, known, all_keys, all_arguments = KEYS[#KEYS], ARGV[#ARGV],
  tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV - 2], KEYS, ARGV
local KEYS, ARGV = {}, {}
for n = 1, #all_keys - 1 do KEYS[n] = all_keys[n] end
for n = 1, #all_arguments - 3 do ARGV[n] = all_arguments[n] end
-- The prelude.
local counted = redis.pcall('LLEN', audit)
if type(counted) == 'table' then return counted end
if counted ~= lines or known ~= '' and known ~= format_version(load_session(1)) then
  return redis.error_reply('AUDIT moved')
end
local function run()
-- The script.
end
local answer = run()
if changed then call('RPUSH', audit, line) end
return answer
