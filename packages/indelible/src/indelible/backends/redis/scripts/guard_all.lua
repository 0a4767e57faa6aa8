-- Refuse to work on a session that lost a part.
local wrong = wrong_head() or (active() and wrong_part())
if wrong then return damaged(wrong) end
