-- Format 3: an index of memories, by their ids and from the newest on. Code of format 2 can write to
-- such a file: the index is derived from the entries. It could not read a memory, though.
CREATE INDEX entry_item ON entry (
    id >> 32, CASE WHEN json_valid(CAST(payload AS TEXT))
        THEN json_extract(CAST(payload AS TEXT), '$.memory.id') END, -id
) WHERE kind = 5;

UPDATE about SET value = 3 WHERE name = 'oldest_format';
