-- Format 1. One file is one transaction; the file's application_id and user_version are set with it.
--
-- Rows that decide what a session shows have a checksum over their other fields: see checksums.py.

-- What the file says of itself beside its header.
CREATE TABLE about (
    name  TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

-- The oldest format whose code can still work with this file.
INSERT INTO about VALUES ('oldest_format', 1);

-- A session and the life that it lives now. Of an append, only the first in a minute writes this row.
CREATE TABLE session (
    number        INTEGER PRIMARY KEY AUTOINCREMENT, -- small, never reused, leads every other key
    namespace     TEXT NOT NULL,
    name          TEXT NOT NULL,
    life          INTEGER NOT NULL,                 -- counts from 1
    born          INTEGER NOT NULL,                 -- the first position of this life
    staged        INTEGER NOT NULL,                 -- 1 while a copy is being put together
    generation    INTEGER NOT NULL,                 -- counts the changes of the view
    tail          INTEGER NOT NULL,                 -- the view: its open tail, and, last, its extents
    deadline      INTEGER,                          -- of a life that has no entry yet
    created_at    INTEGER NOT NULL,
    last_activity INTEGER NOT NULL DEFAULT 0,       -- its minute is exact; the newest entry has the time
    vacuums       INTEGER NOT NULL DEFAULT 0,
    touched       INTEGER NOT NULL DEFAULT 0,       -- counts retries that were answered
    checksum      INTEGER NOT NULL DEFAULT 0,
    forked_from   TEXT,
    metadata      BLOB NOT NULL,
    extents       BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX session_name ON session (namespace, name);
CREATE INDEX session_forked_from ON session (namespace, forked_from)
    WHERE forked_from IS NOT NULL;
CREATE INDEX session_created ON session (namespace, created_at, name);
CREATE INDEX session_activity ON session (namespace, last_activity / 60000);

-- The log. The row id is the session's number and the position, so that a session's entries lie
-- together, in order, under one key; the newest of them carries the end of the log and the deadline.
-- The payload comes last, since it may lie on pages of its own.
CREATE TABLE entry (
    id         INTEGER PRIMARY KEY,                 -- number << 32 | position
    kind       INTEGER NOT NULL,                    -- `core.rows.KIND_NUMBER`
    written_at INTEGER NOT NULL,                    -- milliseconds since 1970
    deadline   INTEGER,                             -- when the life ends, as of this append
    batch_size INTEGER NOT NULL,                    -- entries in its append; 0 for all but the first
    generation INTEGER NOT NULL,                    -- of the view, when it was written
    keep       INTEGER NOT NULL,                    -- 1 if trim must leave it
    key        TEXT,                                -- on the first of its append; '~' if we made it
    call_ids   TEXT,                                -- JSON list of the tool calls that it makes
    answer_ids TEXT,                                -- and of those that it answers
    checksum   INTEGER NOT NULL,
    payload    BLOB NOT NULL
) STRICT;
-- Made keys are looked for in the newest entries only, and cost no index.
CREATE INDEX entry_key ON entry (id >> 32, key) WHERE substr(key, 1, 1) <> '~';
-- Memories and checkpoints by their ids, from the newest on.
CREATE INDEX entry_item ON entry (
    id >> 32, CASE WHEN json_valid(CAST(payload AS TEXT)) THEN json_extract(
        CAST(payload AS TEXT), CASE kind WHEN 5 THEN '$.memory.id' ELSE '$.checkpoint.id' END) END, -id
) WHERE kind IN (5, 7);

-- The words of messages, summaries and memories, as numbers (`core.words.hash_term`): FTS5 keeps the
-- beginnings of some words that were deleted. The row id is that of the entry. To remove an entry from
-- the index, its words are given again; with secure-delete, they then leave its pages.
CREATE VIRTUAL TABLE entry_words USING fts5 (words, content='', detail=none, tokenize='ascii');
INSERT INTO entry_words (entry_words, rank) VALUES ('secure-delete', 1);
INSERT INTO about VALUES ('tokenizer', 'porter unicode61 remove_diacritics 2 categories L* N* Co Mn Mc separators \ufe0e\ufe0f');

-- Vectors of summaries and memories, at length 1 in single precision. The entry has the vector as it
-- was given.
CREATE TABLE entry_vector (
    entry    INTEGER PRIMARY KEY,                   -- its row id
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL
) STRICT;

-- Entries that both indexes lack: a search reads them, and reindex completes them. FTS5 writes a segment
-- for each transaction, so entries are added in portions; the newest ones wait here, and what was
-- written without the indexes.
CREATE TABLE unindexed (
    entry INTEGER PRIMARY KEY                       -- its row id
) STRICT;

CREATE TABLE snapshot (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,     -- the order in which they were taken
    session  INTEGER NOT NULL,
    life     INTEGER NOT NULL,
    id       TEXT NOT NULL,
    label    TEXT,
    taken_at INTEGER NOT NULL,
    "end"    INTEGER NOT NULL,
    tail     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    extents  BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX snapshot_id ON snapshot (session, life, id);

-- Changes of the view, for undo and for answering a retry.
CREATE TABLE journal (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    session        INTEGER NOT NULL,
    life           INTEGER NOT NULL,
    operation      TEXT NOT NULL,
    change         TEXT NOT NULL,
    changed_at     INTEGER NOT NULL,
    generation     INTEGER NOT NULL,                -- after the change
    "end"          INTEGER NOT NULL,                -- of the log, at the change
    undone_by      TEXT,
    tail_before    INTEGER NOT NULL,
    tail_after     INTEGER NOT NULL,
    checksum       INTEGER NOT NULL,
    extents_before BLOB NOT NULL,
    extents_after  BLOB NOT NULL
) STRICT;
CREATE INDEX journal_session ON journal (session, life, number);
CREATE UNIQUE INDEX journal_operation ON journal (session, life, operation);

-- Keys of appends whose entries a vacuum removed, so that a late retry is still recognised.
CREATE TABLE kept_key (
    session    INTEGER NOT NULL,
    life       INTEGER NOT NULL,
    key        TEXT NOT NULL,
    position   INTEGER NOT NULL,
    entries    INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    checksum   INTEGER NOT NULL,
    checksums  BLOB NOT NULL,                       -- of the entries, 16 bytes each
    PRIMARY KEY (session, life, key)
) STRICT, WITHOUT ROWID;

-- The audits of sessions. A line belongs to a name: it stays when the session is deleted.
CREATE TABLE audit (
    namespace TEXT NOT NULL,
    session   TEXT NOT NULL,
    number    INTEGER NOT NULL,                     -- counts from 0
    line      TEXT NOT NULL,
    hash      TEXT NOT NULL,                        -- keyed, over the hash before and the line
    PRIMARY KEY (namespace, session, number)
) STRICT, WITHOUT ROWID;

-- Entries that could not be read when repair met them, byte for byte.
CREATE TABLE quarantine (
    session  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    moved_at INTEGER NOT NULL,
    payload  BLOB NOT NULL,
    PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
