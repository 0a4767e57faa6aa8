-- Format 1. One file is one transaction, which holds the lock of all migrations.
--
-- Names, keys and labels are bytes: text cannot hold every character that a session id may have.
-- The session's number leads every key but the session's own, so that each table can be partitioned
-- by hash; no table refers to another by a foreign key, which could not cross that line cheaply.

-- What the schema says of itself.
CREATE TABLE indelible.about (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);
-- The format, and the oldest format whose code can still work with these tables.
INSERT INTO indelible.about VALUES ('format', 1), ('oldest_format', 1);

-- A session and the life that it lives now. Every write takes this row first: whoever holds it
-- draws the next positions, so that the order of positions is the order of commits.
CREATE SEQUENCE indelible.session_number;
CREATE TABLE indelible.session (
    number      bigint NOT NULL DEFAULT nextval('indelible.session_number'), -- small, never reused
    log_end     bigint NOT NULL,                -- the next position
    deadline    bigint,                         -- when the life ends, in milliseconds since 1970
    born        bigint NOT NULL,                -- the first position of this life
    generation  bigint NOT NULL DEFAULT 0,      -- counts the changes of the view
    tail        bigint NOT NULL,                -- the view: its open tail, and, below, its extents
    created_at  bigint NOT NULL,
    life        integer NOT NULL DEFAULT 1,
    vacuums     integer NOT NULL DEFAULT 0,
    staged      boolean NOT NULL DEFAULT false, -- while a copy is being put together
    namespace   bytea NOT NULL,
    name        bytea NOT NULL,
    forked_from bytea,
    extents     bytea NOT NULL DEFAULT '',
    metadata    bytea NOT NULL DEFAULT '{}',
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 70);                       -- an append updates its row in place
CREATE INDEX session_forked_from ON indelible.session (namespace, forked_from)
    WHERE forked_from IS NOT NULL;

-- The log.
CREATE TABLE indelible.entry (
    session    bigint NOT NULL,
    position   bigint NOT NULL,
    written_at bigint NOT NULL,
    deadline   bigint,                          -- when the life ends, as of this append
    generation bigint NOT NULL,                 -- of the view, when it was written
    life       integer NOT NULL,
    batch      integer NOT NULL,                -- entries in its append; 0 for all but the first
    kind       smallint NOT NULL,               -- 1 message, 2 tool call, 3 tool result, 4 summary
    keep       boolean NOT NULL,                -- whether trim must leave it
    key        bytea,                           -- on the first of its append
    opens      text,                            -- JSON list of the tool calls that it makes
    answers    text,                            -- and of those that it answers
    payload    bytea NOT NULL,
    PRIMARY KEY (session, position)
);
-- This index decides whether a key was used, also against an attempt that its caller gave up on and
-- that still waits in the server.
CREATE UNIQUE INDEX entry_key ON indelible.entry (session, life, key) WHERE key IS NOT NULL;

CREATE SEQUENCE indelible.snapshot_number;
CREATE TABLE indelible.snapshot (
    session  bigint NOT NULL,
    number   bigint NOT NULL DEFAULT nextval('indelible.snapshot_number'), -- the order they came in
    taken_at bigint NOT NULL,
    log_end  bigint NOT NULL,
    tail     bigint NOT NULL,
    life     integer NOT NULL,
    id       bytea NOT NULL,
    label    bytea,
    extents  bytea NOT NULL,
    PRIMARY KEY (session, life, number),
    UNIQUE (session, life, id)
);

-- Changes of the view, for undo and for answering a retry.
CREATE TABLE indelible.journal (
    session        bigint NOT NULL,
    generation     bigint NOT NULL,             -- after the change; it orders the lines of a life
    changed_at     bigint NOT NULL,
    log_end        bigint NOT NULL,             -- at the change
    tail_before    bigint NOT NULL,
    tail_after     bigint NOT NULL,
    life           integer NOT NULL,
    operation      bytea NOT NULL,
    change         bytea NOT NULL,
    undone_by      bytea,
    extents_before bytea NOT NULL,
    extents_after  bytea NOT NULL,
    PRIMARY KEY (session, life, generation),
    UNIQUE (session, life, operation)
);

-- Keys of appends whose entries a vacuum removed, so that a late retry is still recognised.
CREATE TABLE indelible.kept_key (
    session    bigint NOT NULL,
    position   bigint NOT NULL,
    generation bigint NOT NULL,
    life       integer NOT NULL,
    entries    integer NOT NULL,
    key        bytea NOT NULL,
    checksums  bytea NOT NULL,                  -- of the entries, 16 bytes each
    PRIMARY KEY (session, life, key)
);

-- Entries that could not be read when repair met them, byte for byte.
CREATE TABLE indelible.quarantine (
    session  bigint NOT NULL,
    position bigint NOT NULL,
    moved_at bigint NOT NULL,
    reason   bytea NOT NULL,
    payload  bytea NOT NULL,
    PRIMARY KEY (session, position)
);

-- The server's time, or the caller's where a store was opened with a clock of its own.
CREATE FUNCTION indelible.now_ms(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint)
$$;

-- An append in one statement, if the session is active or was never there, and is what was expected.
-- It takes p_count positions and writes the first entry. Returns the version after it: number, life,
-- end and generation. NULL means that nothing was written, and that somebody must look and decide. A
-- key that was used raises unique_violation. (No argument has a default: to read those out of the
-- catalog at each call takes longer than to insert the row.)
CREATE FUNCTION indelible.append(
    p_namespace bytea, p_name bytea, p_key bytea, p_expected text, p_now bigint, p_ttl bigint,
    p_wait text, p_kind smallint, p_keep boolean, p_opens text, p_answers text, p_payload bytea,
    p_count integer
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Assigned, not selected: an expression without a query costs the server much less.
    v_wait       text := set_config('lock_timeout', p_wait, true);
    v_now        bigint := coalesce(p_now,
        floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    v_deadline   bigint := v_now + p_ttl;
    v_number     bigint;
    v_life       integer;
    v_end        bigint;
    v_generation bigint;
    v_vacuums    integer;
BEGIN
    UPDATE indelible.session SET log_end = log_end + p_count, deadline = v_deadline
    WHERE namespace = p_namespace AND name = p_name AND NOT staged
        AND (deadline IS NULL OR deadline > v_now) AND log_end + p_count <= 4294967296
        AND (p_expected IS NULL
            OR p_expected = number || '.' || life || '.' || log_end || '.' || generation)
    RETURNING number, life, log_end, generation, vacuums
    INTO v_number, v_life, v_end, v_generation, v_vacuums;
    IF NOT FOUND THEN
        IF p_expected IS NOT NULL THEN
            RETURN NULL;
        END IF;
        INSERT INTO indelible.session (namespace, name, log_end, deadline, born, tail, created_at)
        VALUES (p_namespace, p_name, p_count, v_deadline, 0, 0, v_now)
        ON CONFLICT DO NOTHING
        RETURNING number, life, log_end, generation, vacuums
        INTO v_number, v_life, v_end, v_generation, v_vacuums;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF v_vacuums > 0 THEN
        -- A statement of its own, behind the row's lock: it sees what every vacuum before left.
        PERFORM FROM indelible.kept_key
        WHERE session = v_number AND life = v_life AND key = p_key;
        IF FOUND THEN
            RAISE unique_violation USING MESSAGE = 'the key was used';
        END IF;
    END IF;
    INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life, batch,
        kind, keep, key, opens, answers, payload)
    VALUES (v_number, v_end - p_count, v_now, v_deadline, v_generation, v_life, p_count,
        p_kind, p_keep, p_key, p_opens, p_answers, p_payload);
    RETURN v_number || '.' || v_life || '.' || v_end || '.' || v_generation;
END
$$;

-- The same for a batch: its first entry, and an array for each column of the others.
CREATE FUNCTION indelible.append_batch(
    p_namespace bytea, p_name bytea, p_key bytea, p_expected text, p_now bigint, p_ttl bigint,
    p_wait text, p_kind smallint, p_keep boolean, p_opens text, p_answers text, p_payload bytea,
    p_kinds smallint[], p_keeps boolean[], p_all_opens text[], p_all_answers text[],
    p_payloads bytea[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_more    integer := cardinality(p_payloads);
    v_version text := indelible.append(p_namespace, p_name, p_key, p_expected, p_now, p_ttl,
        p_wait, p_kind, p_keep, p_opens, p_answers, p_payload, 1 + v_more);
    v_parts   bigint[] := string_to_array(v_version, '.')::bigint[];
BEGIN
    IF v_version IS NOT NULL THEN
        INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life,
            batch, kind, keep, opens, answers, payload)
        SELECT one.session, one.position + nth, one.written_at, one.deadline, one.generation,
            one.life, 0, more.kind, more.keep, more.opens, more.answers, more.payload
        FROM indelible.entry AS one,
            unnest(p_kinds, p_keeps, p_all_opens, p_all_answers, p_payloads)
                WITH ORDINALITY AS more (kind, keep, opens, answers, payload, nth)
        WHERE one.session = v_parts[1] AND one.position = v_parts[3] - 1 - v_more;
    END IF;
    RETURN v_version;
END
$$;
