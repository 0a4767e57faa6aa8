-- Format 5: an index of vectors; the entries that both indexes lack, one by one. The indexes begin anew: reindex
-- completes them, and until then a search reads what they lack.

-- Code of format 4 that still has the file open does not write these. Each append of it names this column as it
-- was, and fails.
ALTER TABLE entry RENAME COLUMN opens TO call_ids;

-- Vectors of summaries and memories, at length 1 in single precision. The entry has the vector as it was given.
CREATE TABLE entry_vector (
    entry    INTEGER PRIMARY KEY,                   -- its row id
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL
) STRICT;

-- FTS5 writes a segment for each transaction, so entries are added in portions. The newest ones wait here, and what
-- was written without the indexes.
DROP TABLE unindexed;
CREATE TABLE unindexed (
    entry INTEGER PRIMARY KEY                       -- its row id
) STRICT;
INSERT INTO entry_text (entry_text) VALUES ('delete-all');
INSERT INTO unindexed SELECT id FROM entry WHERE kind IN (1, 4, 5);

UPDATE about SET value = 5 WHERE name = 'oldest_format';
