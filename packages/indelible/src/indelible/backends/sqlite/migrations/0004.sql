-- Format 4: an index of the words of messages, summaries and memories; checkpoints beside memories in the
-- index of items.

-- Code of format 3 that still has the file open does not write the index. Each append of it names this
-- column as it was, and fails.
ALTER TABLE entry RENAME COLUMN answers TO answer_ids;

-- The row id is that of the entry. The text itself is in the entry alone; to remove an entry from the index,
-- its text is given again. With secure-delete, its words then leave the file.
CREATE VIRTUAL TABLE entry_text USING fts5 (
    text, content='', tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO entry_text (entry_text, rank) VALUES ('secure-delete', 1);

-- Sessions that have entries which the index lacks: all that are older than the index, and those that were
-- written to without it. Reindex completes them; until then, a search reads them.
CREATE TABLE unindexed (
    session INTEGER PRIMARY KEY
) STRICT;
INSERT INTO unindexed SELECT number FROM session;

DROP INDEX entry_item;
CREATE INDEX entry_item ON entry (
    id >> 32, CASE WHEN json_valid(CAST(payload AS TEXT)) THEN json_extract(
        CAST(payload AS TEXT), CASE kind WHEN 5 THEN '$.memory.id' ELSE '$.checkpoint.id' END) END, -id
) WHERE kind IN (5, 7);

UPDATE about SET value = 4 WHERE name = 'oldest_format';
