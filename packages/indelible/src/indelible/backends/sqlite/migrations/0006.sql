-- Format 6: the audits of sessions.
-- A line belongs to a name: it stays when the session is deleted.
CREATE TABLE audit (
    namespace TEXT NOT NULL,
    session   TEXT NOT NULL,
    number    INTEGER NOT NULL,                     -- counts from 0
    line      TEXT NOT NULL,
    hash      TEXT NOT NULL,                        -- keyed, over the hash before and the line
    PRIMARY KEY (namespace, session, number)
) STRICT, WITHOUT ROWID;

UPDATE about SET value = 6 WHERE name = 'oldest_format';
