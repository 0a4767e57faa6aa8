-- Refuse to read entries of a session that lost what they are found by.
local wrong = wrong_head() or (active() and wrong_entries())
if wrong then return damaged(wrong) end
