-- Format 1. One file is one transaction, which holds the lock of all migrations.
--
-- Names, keys and labels are bytes: text cannot hold every character that a session id may have.
-- The session's number leads every key but the session's own, so that each table can be partitioned
-- by hash; for the same reason, no table has a foreign key.
--
-- No function depends on the caller's search_path, in which another role may have put an operator or a
-- function that fits the arguments better than PostgreSQL's own: functions in PL/pgSQL have a
-- search_path of their own, and those in SQL are bound to what they name when they are created. Tables
-- and functions of this schema are always written with their schema.

-- What the schema says of itself.
CREATE TABLE indelible.about (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);
-- The format, and the oldest format whose code can still work with these tables.
INSERT INTO indelible.about VALUES ('format', 1), ('oldest_format', 1);

-- A session and the life that it lives now. Every write locks this row first. Positions are assigned
-- under the lock, so that their order is the order of commits.
CREATE SEQUENCE indelible.session_number;
CREATE TABLE indelible.session (
    number      bigint NOT NULL DEFAULT nextval('indelible.session_number'), -- small, never reused
    log_end     bigint NOT NULL,                -- the next position
    deadline    bigint,                         -- when the life ends, in milliseconds since 1970
    born        bigint NOT NULL,                -- the first position of this life
    generation  bigint NOT NULL DEFAULT 0,      -- counts the changes of the view
    tail        bigint NOT NULL,                -- the view: its open tail, and, below, its extents
    created_at  bigint NOT NULL,
    last_activity   bigint NOT NULL,            -- when it began or was appended to
    activity_minute bigint NOT NULL,            -- of last_activity, for its index; in no checksum
    life        integer NOT NULL DEFAULT 1,
    vacuums     integer NOT NULL DEFAULT 0,
    staged      boolean NOT NULL DEFAULT false, -- while a copy is being put together
    namespace   bytea NOT NULL,
    name        bytea NOT NULL,
    forked_from bytea,
    extents     bigint[] NOT NULL DEFAULT '{}', -- starts and stops, in order
    metadata    bytea NOT NULL DEFAULT '{}',
    checksum    bigint NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 70);                       -- an append updates its row in place
CREATE INDEX session_by_number ON indelible.session (number);
CREATE INDEX session_forked_from ON indelible.session (namespace, forked_from)
    WHERE forked_from IS NOT NULL;
-- The indexes for lists begin with an expression: without statistics the planner would take one that
-- begins with the namespace for a search by name, too.
CREATE INDEX session_created
    ON indelible.session (pg_catalog.encode(namespace, 'hex'), created_at, name);
-- An append that changes an indexed column cannot update its row in place, so that the index has whole
-- minutes: few appends change it, and few sessions of one minute remain to be ordered.
CREATE INDEX session_activity
    ON indelible.session (pg_catalog.encode(namespace, 'hex'), activity_minute);

-- The log.
CREATE TABLE indelible.entry (
    session    bigint NOT NULL,
    position   bigint NOT NULL,
    written_at bigint NOT NULL,
    deadline   bigint,                          -- when the life ends, as of this append
    generation bigint NOT NULL,                 -- of the view, when it was written
    life       integer NOT NULL,
    batch      integer NOT NULL,                -- entries in its append; 0 for all but the first
    kind       smallint NOT NULL,               -- `core.rows.KIND_NUMBER`
    keep       boolean NOT NULL,                -- whether trim must leave it
    key        bytea,                           -- on the first of its append
    opens      text,                            -- JSON list of the tool calls that it makes
    answers    text,                            -- and of those that it answers
    payload    bytea NOT NULL,
    embedder   bytea,                           -- of its vector; NULL if it has none
    vector     real[],                          -- at length one, in single precision; NULL if none
    item       bytea,                           -- the id of a memory
    words      integer[],                       -- a number for each word; NULL if it is not indexed
    checksum   bigint NOT NULL,
    PRIMARY KEY (session, position)
);
-- This index decides whether a key was used, also against an attempt whose caller gave up while it was
-- waiting in the server.
CREATE UNIQUE INDEX entry_key ON indelible.entry (session, life, key) WHERE key IS NOT NULL;
CREATE INDEX entry_item ON indelible.entry (session, item, position DESC) WHERE item IS NOT NULL;

-- The index of words. An append adds to its pending list, which a search looks through; whoever fills it
-- moves it into the index.
CREATE INDEX entry_words ON indelible.entry USING gin (words) WITH (gin_pending_list_limit = 512)
    WHERE words IS NOT NULL;
COMMENT ON INDEX indelible.entry_words IS
    'porter unicode61 remove_diacritics 2 categories L* N* Co Mn Mc separators \ufe0e\ufe0f';
-- What the index of words lacks: a search reads these entries, and reindex completes them.
CREATE INDEX entry_unindexed ON indelible.entry (session, position)
    WHERE words IS NULL AND kind IN (1, 4, 5);

CREATE INDEX entry_vector ON indelible.entry (session, position) WHERE vector IS NOT NULL;

CREATE SEQUENCE indelible.snapshot_number;
CREATE TABLE indelible.snapshot (
    session  bigint NOT NULL,
    number   bigint NOT NULL DEFAULT nextval('indelible.snapshot_number'), -- the order they came in
    taken_at bigint NOT NULL,
    log_end  bigint NOT NULL,
    life     integer NOT NULL,
    id       bytea NOT NULL,
    label    bytea,
    extents  bigint[] NOT NULL,                 -- closed: what the tail held is the last extent
    checksum bigint NOT NULL,
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
    extents_before bigint[] NOT NULL,
    extents_after  bigint[] NOT NULL,
    checksum       bigint NOT NULL,
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
    checksum   bigint NOT NULL,
    PRIMARY KEY (session, life, key)
);

-- The audits of sessions. A line belongs to a name: it stays when the session is deleted.
CREATE TABLE indelible.audit (
    namespace bytea NOT NULL,
    session   bytea NOT NULL,
    number    bigint NOT NULL,                  -- counts from 0
    line      text NOT NULL,
    hash      text NOT NULL,                    -- keyed, over the hash before and the line
    PRIMARY KEY (namespace, session, number)
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

-- The server's time, or the caller's if a store was opened with a clock of its own.
CREATE FUNCTION indelible.now_ms(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);

-- The checksum that an entry's content must have if its row is where it was written: see
-- core/checksums.py. -1, which no content has, if the row is damaged.
CREATE FUNCTION indelible.content_at(
    p_checksum bigint, p_position bigint, p_written_at bigint, p_deadline bigint,
    p_generation bigint, p_batch integer, p_salt bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN CASE
    -- Damaged numbers that are too large to be added up.
    WHEN greatest(p_checksum, p_position, p_written_at, p_deadline, p_generation) > 4503599627370496
        OR least(p_checksum, p_position, p_written_at, p_deadline, p_generation) < -4503599627370496
        THEN -1
    WHEN p_checksum - p_position - p_written_at - coalesce(p_deadline, 0) - p_generation - p_batch
        NOT BETWEEN 0 AND 281474976710655 THEN -1
    ELSE (p_checksum - p_position - p_written_at - coalesce(p_deadline, 0) - p_generation - p_batch
        - p_salt) & 281474976710655
END;

-- A field of variable length with its length, so that it cannot be confused with its neighbours.
CREATE FUNCTION indelible.field(p_value bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
RETURN coalesce(int8send(octet_length(p_value)) || p_value, int8send(-1));

-- 48 bits of SHA-256.
CREATE FUNCTION indelible.hash(p_fields bytea) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN ('x' || encode(substr(sha256(p_fields), 1, 6), 'hex'))::bit(48)::bigint;

-- The checksum of a session's row. An append changes three of its columns; these are added, so that an
-- append need not hash the others again. NULL if one of them is too large to be added: it is damaged.
--
-- The functions for checksums become part of the plan of a statement that calls them. For that they must
-- be declared stable, as `array_send` is.
CREATE FUNCTION indelible.session_checksum(
    p_number bigint, p_life integer, p_born bigint, p_generation bigint, p_tail bigint,
    p_created_at bigint, p_vacuums integer, p_staged boolean, p_namespace bytea, p_name bytea,
    p_forked_from bytea, p_extents bigint[], p_metadata bytea, p_log_end bigint, p_deadline bigint,
    p_last_activity bigint
) RETURNS bigint LANGUAGE sql STABLE
RETURN CASE
    WHEN p_log_end BETWEEN 0 AND 4503599627370496
        AND coalesce(p_deadline, 0) BETWEEN -4503599627370496 AND 4503599627370496
        AND p_last_activity BETWEEN 0 AND 4503599627370496
    THEN indelible.hash(int8send(p_number) || int4send(p_life) || int8send(p_born)
            || int8send(p_generation) || int8send(p_tail) || int8send(p_created_at)
            || int4send(p_vacuums) || boolsend(p_staged) || indelible.field(p_namespace)
            || indelible.field(p_name) || indelible.field(p_forked_from)
            || indelible.field(array_send(p_extents)) || indelible.field(p_metadata))
        + p_log_end + coalesce(p_deadline, 0) + p_last_activity
END;

CREATE FUNCTION indelible.snapshot_checksum(
    p_session bigint, p_life integer, p_number bigint, p_taken_at bigint, p_log_end bigint,
    p_id bytea, p_label bytea, p_extents bigint[]
) RETURNS bigint LANGUAGE sql STABLE
RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_number)
        || int8send(p_taken_at) || int8send(p_log_end) || indelible.field(p_id)
        || indelible.field(p_label) || indelible.field(array_send(p_extents)));

CREATE FUNCTION indelible.journal_checksum(
    p_session bigint, p_life integer, p_generation bigint, p_changed_at bigint, p_log_end bigint,
    p_tail_before bigint, p_tail_after bigint, p_operation bytea, p_change bytea,
    p_undone_by bytea, p_extents_before bigint[], p_extents_after bigint[]
) RETURNS bigint LANGUAGE sql STABLE
RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_generation)
        || int8send(p_changed_at) || int8send(p_log_end) || int8send(p_tail_before)
        || int8send(p_tail_after) || indelible.field(p_operation) || indelible.field(p_change)
        || indelible.field(p_undone_by) || indelible.field(array_send(p_extents_before))
        || indelible.field(array_send(p_extents_after)));

CREATE FUNCTION indelible.kept_key_checksum(
    p_session bigint, p_life integer, p_position bigint, p_generation bigint, p_entries integer,
    p_key bytea, p_checksums bytea
) RETURNS bigint LANGUAGE sql STABLE
RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_position)
        || int8send(p_generation) || int4send(p_entries) || indelible.field(p_key)
        || indelible.field(p_checksums));

CREATE FUNCTION indelible.version(p_number bigint, p_life integer, p_end bigint, p_generation bigint)
RETURNS text LANGUAGE sql IMMUTABLE
RETURN p_number || '.' || p_life || '.' || p_end || '.' || p_generation;

-- Whether a session's row is that of an active session, and not damaged. False for a session that is
-- not there, is staged or has expired. (The parameter is not of the table's type, so that the table can
-- be replaced by a partitioned one.)
CREATE FUNCTION indelible.is_active(p_session anyelement, p_now bigint)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(NOT p_session.staged AND (p_session.deadline IS NULL OR p_session.deadline > p_now)
        AND p_session.checksum = indelible.session_checksum(p_session.number, p_session.life,
            p_session.born, p_session.generation, p_session.tail, p_session.created_at,
            p_session.vacuums, p_session.staged, p_session.namespace, p_session.name,
            p_session.forked_from, p_session.extents, p_session.metadata, p_session.log_end,
            p_session.deadline, p_session.last_activity), false);
END
$$;

-- Whether extents are in order and inside of a log; a closed view may end where its log ends.
CREATE FUNCTION indelible.is_inside(p_extents bigint[], p_born bigint, p_end bigint)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_last   bigint := p_born - 1;
    v_number bigint;
BEGIN
    FOREACH v_number IN ARRAY p_extents LOOP
        IF v_number <= v_last THEN
            RETURN false;
        END IF;
        v_last := v_number;
    END LOOP;
    RETURN v_last <= p_end AND cardinality(p_extents) % 2 = 0;
END
$$;

-- Whether a key was used in this life: by an entry, or by one that a vacuum removed. The statements have
-- snapshots of their own, which see all that was committed before the session was locked.
CREATE FUNCTION indelible.is_used(p_session bigint, p_life integer, p_vacuums integer, p_key bytea)
RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM indelible.entry WHERE session = p_session AND life = p_life AND key = p_key;
    IF NOT FOUND AND p_vacuums > 0 THEN
        PERFORM FROM indelible.kept_key WHERE session = p_session AND life = p_life AND key = p_key;
    END IF;
    RETURN FOUND;
END
$$;

-- The guarded write of one or more appends to one or more sessions. An append is written if its session
-- is active, or was never there and is begun here; is as expected; has room; and the key was not used in
-- this life. Only the first append to a session begins it. The result has an element for each append:
-- the version after it, or NULL if nothing of it was written.
--
-- Arrays from p_names to p_counts have an element for each append, the others for each entry; those that
-- have no value in any element may be NULL. Appends are in the order of their sessions' names, so that
-- two groups never wait for each other in a circle; entries are in the order of their appends. A key
-- that is fresh is not looked up. p_contents are the checksums of the entries' contents, to which the
-- place of an entry is added.
--
-- Here as in the other writes, what is set is set for the transaction. That its commit did not wait for a
-- standby is a warning, which a role may have switched off.
--
-- Each expression of PL/pgSQL is initialised once per transaction, which takes longer than to evaluate
-- it: few large expressions are faster than many small ones.
CREATE FUNCTION indelible.append(
    p_wait text, p_namespace bytea, p_now bigint,
    p_names bytea[], p_keys bytea[], p_fresh boolean[], p_expected text[], p_ttls bigint[],
    p_counts bigint[],
    p_kinds bigint[], p_keeps boolean[], p_opens text[], p_answers text[], p_payloads bytea[],
    p_embedders bytea[], p_vectors text[], p_items bytea[], p_words text[], p_contents bigint[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_bounds     text := set_config('lock_timeout', p_wait, true)
        || set_config('client_min_messages', 'warning', true);
    v_versions   text[] := array_fill(NULL::text, ARRAY[cardinality(p_names)]);
    v_now        bigint;
    v_number     bigint;
    v_life       integer;
    v_end        bigint;
    v_generation bigint;
    v_deadline   bigint;
    v_vacuums    integer;
    v_batch      integer;
    v_version    text;
    v_is_active  boolean;
    v_first      bigint := 1;
BEGIN
    FOR v_nth IN 1 .. cardinality(p_names) LOOP
        IF p_names[v_nth] IS DISTINCT FROM p_names[v_nth - 1] THEN
            LOOP
                SELECT number, life, log_end, generation, deadline, vacuums,
                    indelible.version(number, life, log_end, generation),
                    NOT staged AND checksum = indelible.session_checksum(number, life, born,
                        generation, tail, created_at, vacuums, staged, namespace, name, forked_from,
                        extents, metadata, log_end, deadline, last_activity)
                INTO v_number, v_life, v_end, v_generation, v_deadline, v_vacuums, v_version,
                    v_is_active
                FROM indelible.session WHERE namespace = p_namespace AND name = p_names[v_nth]
                FOR UPDATE;
                -- Read behind the lock, for which the call may have waited.
                v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
                EXIT WHEN v_number IS NOT NULL OR p_expected[v_nth] <> 'new';
                v_number := nextval('indelible.session_number');
                INSERT INTO indelible.session (number, namespace, name, log_end, deadline, born, tail,
                    created_at, last_activity, activity_minute, checksum)
                VALUES (v_number, p_namespace, p_names[v_nth], 0, NULL, 0, 0, v_now, v_now,
                    v_now / 60000, indelible.session_checksum(v_number, 1, 0, 0, 0, v_now, 0, false,
                        p_namespace, p_names[v_nth], NULL, '{}', '{}', 0, NULL, v_now))
                ON CONFLICT DO NOTHING
                RETURNING life, log_end, generation, vacuums, 'new', true
                INTO v_life, v_end, v_generation, v_vacuums, v_version, v_is_active;
                -- Otherwise another writer began it at this moment: append to that.
                EXIT WHEN FOUND;
            END LOOP;
            v_is_active := v_is_active AND (v_deadline IS NULL OR v_deadline > v_now);
        END IF;
        IF v_is_active AND v_end <= 4294967296 - p_counts[v_nth]
            AND (p_expected[v_nth] IS NULL OR p_expected[v_nth] = v_version)
            AND (p_fresh[v_nth]
                OR NOT indelible.is_used(v_number, v_life, v_vacuums, p_keys[v_nth]))
        THEN
            v_deadline := v_now + p_ttls[v_nth];
            v_batch := p_counts[v_nth];
            FOR v_entry IN v_first .. v_first + v_batch - 1 LOOP
                INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life,
                    batch, kind, keep, key, opens, answers, payload, embedder, vector, item, words,
                    checksum)
                VALUES (v_number, v_end, v_now, v_deadline, v_generation, v_life, v_batch,
                    p_kinds[v_entry], p_keeps[v_entry], CASE WHEN v_batch > 0 THEN p_keys[v_nth] END,
                    p_opens[v_entry], p_answers[v_entry], p_payloads[v_entry], p_embedders[v_entry],
                    p_vectors[v_entry]::real[], p_items[v_entry], p_words[v_entry]::integer[],
                    p_contents[v_entry] + v_end + v_now + coalesce(v_deadline, 0) + v_generation + v_batch);
                v_end := v_end + 1;
                v_batch := 0;
            END LOOP;
            v_version := indelible.version(v_number, v_life, v_end, v_generation);
            v_versions[v_nth] := v_version;
        END IF;
        v_first := v_first + p_counts[v_nth];
        IF p_names[v_nth] IS DISTINCT FROM p_names[v_nth + 1] THEN
            UPDATE indelible.session SET log_end = v_end, deadline = v_deadline,
                last_activity = greatest(last_activity, v_now),
                activity_minute = greatest(last_activity, v_now) / 60000,
                checksum = checksum + v_end - log_end + coalesce(v_deadline, 0) - coalesce(deadline, 0)
                    + greatest(last_activity, v_now) - last_activity
            WHERE namespace = p_namespace AND name = p_names[v_nth] AND log_end < v_end;
        END IF;
    END LOOP;
    RETURN v_versions;
END
$$;

-- The guarded write of a snapshot: a copy of the session's view, closed at the log's end. It is written
-- if the session is active, its view is in order and has at most p_extents_max extents, and the id was
-- not used in this life. Otherwise all results are NULL.
CREATE FUNCTION indelible.save_snapshot(
    p_wait text, p_namespace bytea, p_name bytea, p_now bigint, p_id bytea, p_label bytea,
    p_extents_max integer,
    OUT o_taken_at bigint, OUT o_log_end bigint, OUT o_extents bigint[]
) LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_bounds  text := set_config('lock_timeout', p_wait, true)
        || set_config('client_min_messages', 'warning', true);
    v_session indelible.session;
    v_now     bigint;
    v_closed  bigint[];
    v_number  bigint;
BEGIN
    SELECT * INTO v_session FROM indelible.session
    WHERE namespace = p_namespace AND name = p_name FOR UPDATE;
    v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    v_closed := v_session.extents || CASE WHEN v_session.tail = v_session.log_end THEN '{}'
        ELSE ARRAY[v_session.tail, v_session.log_end] END;
    IF (indelible.is_active(v_session, v_now) AND cardinality(v_closed) <= 2 * p_extents_max
        AND indelible.is_inside(v_closed, v_session.born, v_session.log_end)) IS NOT TRUE
    THEN
        RETURN;
    END IF;
    PERFORM FROM indelible.snapshot
    WHERE session = v_session.number AND life = v_session.life AND id = p_id;
    IF FOUND THEN
        RETURN;
    END IF;
    v_number := nextval('indelible.snapshot_number');
    INSERT INTO indelible.snapshot (session, life, number, id, label, taken_at, log_end, extents,
        checksum)
    VALUES (v_session.number, v_session.life, v_number, p_id, p_label, v_now, v_session.log_end,
        v_closed, indelible.snapshot_checksum(v_session.number, v_session.life, v_number, v_now,
            v_session.log_end, p_id, p_label, v_closed));
    o_taken_at := v_now;
    o_log_end := v_session.log_end;
    o_extents := v_closed;
END
$$;

-- The guarded write of a rollback: the snapshot's view becomes the session's, and a line of the journal
-- records it. It is written if the session is active and as expected, both views are in order and
-- inside of the log of this life, and the key was not used in it. The results are the line; otherwise
-- they are NULL.
CREATE FUNCTION indelible.roll_back(
    p_wait text, p_namespace bytea, p_name bytea, p_now bigint, p_expected text, p_snapshot bytea,
    p_key bytea, p_change bytea,
    OUT o_changed_at bigint, OUT o_version text, OUT o_log_end bigint, OUT o_tail_before bigint,
    OUT o_tail_after bigint, OUT o_extents_before bigint[], OUT o_extents_after bigint[]
) LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_bounds   text := set_config('lock_timeout', p_wait, true)
        || set_config('client_min_messages', 'warning', true);
    v_session  indelible.session;
    v_snapshot indelible.snapshot;
    v_now      bigint;
    v_tail     bigint;
    v_extents  bigint[];
    v_last     integer;
BEGIN
    SELECT * INTO v_session FROM indelible.session
    WHERE namespace = p_namespace AND name = p_name FOR UPDATE;
    v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    IF (indelible.is_active(v_session, v_now) AND (p_expected IS NULL OR p_expected
            = indelible.version(v_session.number, v_session.life, v_session.log_end,
                v_session.generation))
        AND indelible.is_inside(v_session.extents || v_session.tail || v_session.log_end + 1,
            v_session.born, v_session.log_end + 1)) IS NOT TRUE
    THEN
        RETURN;
    END IF;
    SELECT * INTO v_snapshot FROM indelible.snapshot
    WHERE session = v_session.number AND life = v_session.life AND id = p_snapshot
        AND checksum = indelible.snapshot_checksum(session, life, number, taken_at, log_end, id,
            label, extents);
    v_extents := v_snapshot.extents;
    IF (v_snapshot.log_end <= v_session.log_end
        AND indelible.is_inside(v_extents, v_session.born, v_snapshot.log_end)) IS NOT TRUE
    THEN
        RETURN;
    END IF;
    PERFORM FROM indelible.journal
    WHERE session = v_session.number AND life = v_session.life AND operation = p_key;
    IF FOUND THEN
        RETURN;
    END IF;
    -- What comes after the end of the log shows, too. A last extent that reaches it is part of that.
    v_tail := v_session.log_end;
    v_last := cardinality(v_extents);
    IF v_extents[v_last] = v_tail THEN
        v_tail := v_extents[v_last - 1];
        v_extents := v_extents[: v_last - 2];
    END IF;
    UPDATE indelible.session SET tail = v_tail, extents = v_extents, generation = generation + 1,
        checksum = indelible.session_checksum(number, life, born, generation + 1, v_tail, created_at,
            vacuums, staged, namespace, name, forked_from, v_extents, metadata, log_end, deadline,
            last_activity)
    WHERE namespace = p_namespace AND name = p_name;
    INSERT INTO indelible.journal (session, life, operation, change, changed_at, generation,
        log_end, tail_before, tail_after, extents_before, extents_after, checksum)
    VALUES (v_session.number, v_session.life, p_key, p_change, v_now, v_session.generation + 1,
        v_session.log_end, v_session.tail, v_tail, v_session.extents, v_extents,
        indelible.journal_checksum(v_session.number, v_session.life, v_session.generation + 1,
            v_now, v_session.log_end, v_session.tail, v_tail, p_key, p_change, NULL,
            v_session.extents, v_extents));
    o_changed_at := v_now;
    o_version := indelible.version(v_session.number, v_session.life, v_session.log_end,
        v_session.generation + 1);
    o_log_end := v_session.log_end;
    o_tail_before := v_session.tail;
    o_tail_after := v_tail;
    o_extents_before := v_session.extents;
    o_extents_after := v_extents;
END
$$;

-- A session and the newest p_limit of its visible entries, in one state: the function is stable, so all
-- that it reads is of the moment at which it was called. Payloads of the kinds in p_without are cut
-- after p_cut bytes. There is a row in any case: it has the server's time.
CREATE FUNCTION indelible.load_session(
    p_namespace bytea, p_name bytea, p_now bigint, p_limit bigint, p_without bigint[],
    p_cut integer, p_salt bigint,
    OUT o_now bigint, OUT o_number bigint, OUT o_life integer, OUT o_born bigint,
    OUT o_log_end bigint, OUT o_generation bigint, OUT o_deadline bigint, OUT o_staged boolean,
    OUT o_tail bigint, OUT o_extents bigint[], OUT o_created_at bigint, OUT o_last_activity bigint,
    OUT o_metadata bytea, OUT o_forked_from bytea, OUT o_vacuums integer, OUT o_is_intact boolean,
    OUT o_positions bigint[], OUT o_kinds smallint[], OUT o_written_at bigint[],
    OUT o_payloads bytea[], OUT o_contents bigint[]
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_left   bigint := p_limit;
    v_start  bigint;
    v_stop   bigint;
    v_next   integer;
    v_starts bigint[] := '{}';
    v_stops  bigint[] := '{}';
BEGIN
    o_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    SELECT number, life, born, log_end, generation, deadline, staged, tail, extents, created_at,
        last_activity, metadata, forked_from, vacuums,
        checksum = indelible.session_checksum(number, life, born, generation, tail, created_at,
            vacuums, staged, namespace, name, forked_from, extents, metadata, log_end, deadline,
            last_activity)
    INTO o_number, o_life, o_born, o_log_end, o_generation, o_deadline, o_staged, o_tail, o_extents,
        o_created_at, o_last_activity, o_metadata, o_forked_from, o_vacuums, o_is_intact
    FROM indelible.session WHERE namespace = p_namespace AND name = p_name;
    IF NOT FOUND OR p_limit = 0 OR o_is_intact IS NOT TRUE THEN
        RETURN;
    END IF;
    -- From the newest extent on, back to the one in which the limit is reached.
    v_start := o_tail;
    v_stop := o_log_end;
    v_next := cardinality(o_extents);
    LOOP
        v_start := greatest(v_start, v_stop - v_left);
        v_starts := v_starts || v_start;
        v_stops := v_stops || v_stop;
        v_left := v_left - (v_stop - v_start);
        EXIT WHEN v_left <= 0 OR v_next < 2;
        v_start := o_extents[v_next - 1];
        v_stop := o_extents[v_next];
        v_next := v_next - 2;
    END LOOP;
    SELECT array_agg(position), array_agg(kind), array_agg(written_at),
        array_agg(CASE WHEN kind = ANY (p_without) THEN substr(payload, 1, p_cut) ELSE payload END),
        array_agg(indelible.content_at(checksum, position, written_at, deadline, generation, batch,
            p_salt))
    INTO o_positions, o_kinds, o_written_at, o_payloads, o_contents
    FROM unnest(v_starts, v_stops) AS extent (start, stop)
    JOIN indelible.entry ON session = o_number AND position >= start AND position < stop;
END
$$;
