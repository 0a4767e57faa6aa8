-- Change nothing: a line of the audit is all that is written.
changed = true
return 1
