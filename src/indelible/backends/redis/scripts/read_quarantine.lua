-- What was put into quarantine.
return call('HGETALL', ASIDE)
