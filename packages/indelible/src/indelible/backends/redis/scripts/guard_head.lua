-- Refuse to work on a session whose head is missing or damaged.
local wrong = wrong_head()
if wrong then return damaged(wrong) end
