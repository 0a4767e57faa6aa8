-- What the next line of the audit follows: the time, the version of the session, how many lines there are, and
-- the newest. The last of KEYS is the list of the audit. A damaged view does not matter here.
local audit = KEYS[#KEYS]
return {now, format_version(s), call('LLEN', audit), call('LINDEX', audit, -1)}
