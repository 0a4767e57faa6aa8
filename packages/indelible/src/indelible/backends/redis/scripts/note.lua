-- Change nothing but the audit.
changed = true
return 1
