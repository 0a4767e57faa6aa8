-- Format 2: a checksum on every row that decides what a session shows; sessions by their times.

-- Code of format 1 that still has the file open cannot write checksums. Every statement of it that
-- finds a session or appends uses this column by its old name, and fails.
ALTER TABLE entry RENAME COLUMN batch TO batch_size;

ALTER TABLE entry ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE entry SET checksum = ifnull(
    (SELECT entry_checksum(namespace, name, entry.payload, entry.id & 4294967295, entry.written_at,
        entry.deadline, entry.generation, entry.batch_size)
     FROM session WHERE number = entry.id >> 32), 0);

-- When a session was active last, in milliseconds. An append writes it only in a new minute, which
-- the index has, and with which lists begin; its newest entry says the exact time.
ALTER TABLE session ADD COLUMN last_activity INTEGER NOT NULL DEFAULT 0;
UPDATE session SET last_activity = max(created_at, ifnull(
    (SELECT written_at FROM entry WHERE id >= (number << 32) + born AND id < (number + 1) << 32
     ORDER BY id DESC LIMIT 1), 0));
CREATE INDEX session_activity ON session (namespace, last_activity / 60000);
CREATE INDEX session_created ON session (namespace, created_at, name);

ALTER TABLE session ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE session SET checksum = row_checksum(number, namespace, name, life, born, staged, generation,
    tail, deadline, created_at, last_activity, vacuums, forked_from, metadata, extents);

ALTER TABLE snapshot ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE snapshot SET checksum = row_checksum(session, life, id, label, taken_at, "end", tail,
    extents);

ALTER TABLE journal ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE journal SET checksum = row_checksum(session, life, operation, change, changed_at, generation,
    "end", undone_by, tail_before, tail_after, extents_before, extents_after);

ALTER TABLE kept_key ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE kept_key SET checksum = row_checksum(session, life, key, position, entries, generation,
    checksums);

UPDATE about SET value = 2 WHERE name = 'oldest_format';
