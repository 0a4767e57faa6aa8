-- Format 5. A view is an array of numbers: the starts and the stops of its extents, in order. The
-- server can extend it without decoding, and so a snapshot and a rollback are one guarded write each,
-- as is a group of appends. Code of older formats can no longer use these tables.

UPDATE indelible.about SET value = 5 WHERE name IN ('format', 'oldest_format');

DROP FUNCTION indelible.append_batch;
DROP FUNCTION indelible.append;
DROP FUNCTION indelible.append_many;
DROP FUNCTION indelible.with_vectors;
DROP FUNCTION indelible.save_snapshot;
DROP FUNCTION indelible.roll_back;
DROP FUNCTION indelible.last_stop;
DROP FUNCTION indelible.varint;

-- Rows that are damaged stay so: -1 is no checksum.
UPDATE indelible.session SET checksum = -1
WHERE checksum IS DISTINCT FROM indelible.session_checksum(number, life, born, generation, tail,
    created_at, vacuums, staged, namespace, name, forked_from, extents, metadata, log_end, deadline);
UPDATE indelible.snapshot SET checksum = -1
WHERE checksum IS DISTINCT FROM indelible.snapshot_checksum(session, life, number, taken_at, log_end,
    tail, id, label, extents);
UPDATE indelible.journal SET checksum = -1
WHERE checksum IS DISTINCT FROM indelible.journal_checksum(session, life, generation, changed_at,
    log_end, tail_before, tail_after, operation, change, undone_by, extents_before, extents_after);

DROP FUNCTION indelible.session_checksum;
DROP FUNCTION indelible.snapshot_checksum;
DROP FUNCTION indelible.journal_checksum;

-- Views of older formats: gaps and lengths in turn, with seven bits in a byte, the lowest first.
CREATE FUNCTION indelible.decode_view(p_view bytea) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_byte   integer;
    v_shift  integer := 0;
    v_number bigint := 0;
    v_at     bigint := 0;
    v_view   bigint[] := '{}';
BEGIN
    FOR v_nth IN 0 .. octet_length(p_view) - 1 LOOP
        v_byte := get_byte(p_view, v_nth);
        v_number := v_number | ((v_byte & 127)::bigint << least(v_shift, 49));
        v_shift := v_shift + 7;
        IF v_byte < 128 THEN
            v_at := v_at + v_number;
            v_view := v_view || v_at;
            v_number := 0;
            v_shift := 0;
        END IF;
    END LOOP;
    RETURN v_view;
END
$$;

ALTER TABLE indelible.session ALTER COLUMN extents DROP DEFAULT;
ALTER TABLE indelible.session
    ALTER COLUMN extents TYPE bigint[] USING indelible.decode_view(extents),
    ALTER COLUMN extents SET DEFAULT '{}';
-- A snapshot's view is closed: what its tail held is its last extent.
ALTER TABLE indelible.snapshot ALTER COLUMN extents TYPE bigint[] USING indelible.decode_view(extents)
    || CASE WHEN tail = log_end THEN '{}' ELSE ARRAY[tail, log_end] END;
ALTER TABLE indelible.snapshot DROP COLUMN tail;
ALTER TABLE indelible.journal
    ALTER COLUMN extents_before TYPE bigint[] USING indelible.decode_view(extents_before),
    ALTER COLUMN extents_after TYPE bigint[] USING indelible.decode_view(extents_after);
DROP FUNCTION indelible.decode_view;

-- Checksums as in format 4, of views in their new form.
CREATE FUNCTION indelible.session_checksum(
    p_number bigint, p_life integer, p_born bigint, p_generation bigint, p_tail bigint,
    p_created_at bigint, p_vacuums integer, p_staged boolean, p_namespace bytea, p_name bytea,
    p_forked_from bytea, p_extents bigint[], p_metadata bytea, p_log_end bigint, p_deadline bigint
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_log_end NOT BETWEEN 0 AND 4503599627370496
        OR p_deadline NOT BETWEEN -4503599627370496 AND 4503599627370496
    THEN
        RETURN NULL;
    END IF;
    RETURN indelible.hash(int8send(p_number) || int4send(p_life) || int8send(p_born)
            || int8send(p_generation) || int8send(p_tail) || int8send(p_created_at)
            || int4send(p_vacuums) || boolsend(p_staged) || indelible.field(p_namespace)
            || indelible.field(p_name) || indelible.field(p_forked_from)
            || indelible.field(array_send(p_extents)) || indelible.field(p_metadata))
        + p_log_end + coalesce(p_deadline, 0);
END
$$;

CREATE FUNCTION indelible.snapshot_checksum(
    p_session bigint, p_life integer, p_number bigint, p_taken_at bigint, p_log_end bigint,
    p_id bytea, p_label bytea, p_extents bigint[]
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_number)
        || int8send(p_taken_at) || int8send(p_log_end) || indelible.field(p_id)
        || indelible.field(p_label) || indelible.field(array_send(p_extents)));
END
$$;

CREATE FUNCTION indelible.journal_checksum(
    p_session bigint, p_life integer, p_generation bigint, p_changed_at bigint, p_log_end bigint,
    p_tail_before bigint, p_tail_after bigint, p_operation bytea, p_change bytea,
    p_undone_by bytea, p_extents_before bigint[], p_extents_after bigint[]
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_generation)
        || int8send(p_changed_at) || int8send(p_log_end) || int8send(p_tail_before)
        || int8send(p_tail_after) || indelible.field(p_operation) || indelible.field(p_change)
        || indelible.field(p_undone_by) || indelible.field(array_send(p_extents_before))
        || indelible.field(array_send(p_extents_after)));
END
$$;

UPDATE indelible.session SET checksum = indelible.session_checksum(number, life, born, generation,
    tail, created_at, vacuums, staged, namespace, name, forked_from, extents, metadata, log_end,
    deadline)
WHERE checksum <> -1;
UPDATE indelible.snapshot SET checksum = indelible.snapshot_checksum(session, life, number, taken_at,
    log_end, id, label, extents)
WHERE checksum <> -1;
UPDATE indelible.journal SET checksum = indelible.journal_checksum(session, life, generation,
    changed_at, log_end, tail_before, tail_after, operation, change, undone_by, extents_before,
    extents_after)
WHERE checksum <> -1;

-- Whether a session's row says that it can be written to and its view can be trusted. False for a
-- session that is not there, is staged, has expired or is damaged: then the client looks and decides.
-- (Not of the table's type, so that the table can be replaced by one with partitions.)
CREATE FUNCTION indelible.is_active(p_session anyelement, p_now bigint)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(NOT p_session.staged AND (p_session.deadline IS NULL OR p_session.deadline > p_now)
        AND p_session.checksum = indelible.session_checksum(p_session.number, p_session.life,
            p_session.born, p_session.generation, p_session.tail, p_session.created_at,
            p_session.vacuums, p_session.staged, p_session.namespace, p_session.name,
            p_session.forked_from, p_session.extents, p_session.metadata, p_session.log_end,
            p_session.deadline), false);
END
$$;

CREATE FUNCTION indelible.version(p_number bigint, p_life integer, p_end bigint, p_generation bigint)
RETURNS text LANGUAGE sql IMMUTABLE
RETURN p_number || '.' || p_life || '.' || p_end || '.' || p_generation;

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

-- The guarded write of one or more appends to one or more sessions. Sessions come in the order of their
-- names, so that two groups never wait for each other in a circle. An append is written if its session
-- is active, or was never there; is as expected; has room; and the key was not used in this life. The
-- result has an element for each append: the version after it, or NULL if nothing of it was written.
--
-- p_sessions is [{"name": …, "appends": [{"key": …, "fresh": …, "expected": …, "ttl": …, "entries":
-- [{"kind": …, "keep": …, "opens": …, "answers": …, "embedder": …, "vector": …, "checksum": …, "start":
-- …, "size": …}]}]}]. Bytes are in hex, but payloads: start and size say where they are in p_payloads.
-- To the checksum of an entry's content its place is added. A key that is fresh is not looked up.
CREATE FUNCTION indelible.append(
    p_wait text, p_namespace bytea, p_now bigint, p_sessions jsonb, p_payloads bytea
) RETURNS text[] LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Assigned, not selected: an expression without a query costs the server much less.
    v_wait      text := set_config('lock_timeout', p_wait, true);
    v_group     jsonb;
    v_appends   jsonb;
    v_append    jsonb;
    v_name      bytea;
    v_key       bytea;
    v_expected  text;
    v_count     bigint;
    v_now       bigint;
    v_deadline  bigint;
    v_end       bigint;
    v_session   indelible.session;
    v_is_there  boolean;
    v_is_active boolean;
    v_versions  text[] := '{}';
BEGIN
    FOR v_nth IN 0 .. jsonb_array_length(p_sessions) - 1 LOOP
        v_group := p_sessions -> v_nth;
        v_name := decode(v_group ->> 'name', 'hex');
        SELECT * INTO v_session FROM indelible.session
        WHERE namespace = p_namespace AND name = v_name FOR UPDATE;
        v_is_there := FOUND;
        -- Behind the lock, for which it may have waited.
        v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
        v_is_active := indelible.is_active(v_session, v_now);
        v_end := coalesce(v_session.log_end, 0);
        v_appends := v_group -> 'appends';
        FOR v_nth_append IN 0 .. jsonb_array_length(v_appends) - 1 LOOP
            v_append := v_appends -> v_nth_append;
            v_expected := v_append ->> 'expected';
            v_count := jsonb_array_length(v_append -> 'entries');
            v_deadline := v_now + (v_append ->> 'ttl')::bigint;
            IF NOT v_is_there AND (v_expected IS NULL OR v_expected = 'new') THEN
                v_session.number := nextval('indelible.session_number');
                INSERT INTO indelible.session (number, namespace, name, log_end, deadline, born,
                    tail, created_at, checksum)
                VALUES (v_session.number, p_namespace, v_name, 0, v_deadline, 0, 0, v_now,
                    indelible.session_checksum(v_session.number, 1, 0, 0, 0, v_now, 0, false,
                        p_namespace, v_name, NULL, '{}', '{}', 0, v_deadline))
                ON CONFLICT DO NOTHING
                RETURNING * INTO v_session;
                -- Otherwise somebody else began it at this moment, and the client looks.
                v_is_active := FOUND;
                v_is_there := true;
                v_expected := NULL;
            END IF;
            IF NOT v_is_active OR v_end > 4294967296 - v_count
                OR (v_expected IS NOT NULL AND v_expected <> indelible.version(v_session.number,
                    v_session.life, v_end, v_session.generation))
            THEN
                v_versions := v_versions || NULL::text;
                CONTINUE;
            END IF;
            v_key := decode(v_append ->> 'key', 'hex');
            IF NOT (v_append ->> 'fresh')::boolean THEN
                -- In statements of their own, which see what was committed before the lock was taken.
                PERFORM FROM indelible.entry
                WHERE session = v_session.number AND life = v_session.life AND key = v_key;
                IF NOT FOUND AND v_session.vacuums > 0 THEN
                    PERFORM FROM indelible.kept_key
                    WHERE session = v_session.number AND life = v_session.life AND key = v_key;
                END IF;
                IF FOUND THEN
                    v_versions := v_versions || NULL::text;
                    CONTINUE;
                END IF;
            END IF;
            INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life,
                batch, kind, keep, key, opens, answers, payload, embedder, vector, checksum)
            SELECT v_session.number, v_end + nth - 1, v_now, v_deadline, v_session.generation,
                v_session.life, batch, (entry ->> 'kind')::smallint, (entry ->> 'keep')::boolean,
                CASE WHEN nth = 1 THEN v_key END, entry ->> 'opens', entry ->> 'answers',
                substr(p_payloads, (entry ->> 'start')::integer, (entry ->> 'size')::integer),
                decode(entry ->> 'embedder', 'hex'), (entry ->> 'vector')::real[],
                (entry ->> 'checksum')::bigint + v_end + nth - 1 + v_now + coalesce(v_deadline, 0)
                    + v_session.generation + batch
            FROM jsonb_array_elements(v_append -> 'entries') WITH ORDINALITY AS one (entry, nth),
                LATERAL (SELECT CASE WHEN nth = 1 THEN v_count ELSE 0 END) AS first (batch);
            v_end := v_end + v_count;
            v_versions := v_versions || indelible.version(v_session.number, v_session.life, v_end,
                v_session.generation);
            v_session.deadline := v_deadline;
        END LOOP;
        IF v_is_active AND v_end > v_session.log_end THEN
            UPDATE indelible.session SET log_end = v_end, deadline = v_session.deadline,
                checksum = checksum + v_end - log_end + coalesce(v_session.deadline, 0)
                    - coalesce(deadline, 0)
            WHERE namespace = p_namespace AND name = v_name;
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
    v_wait    text := set_config('lock_timeout', p_wait, true);
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
    v_wait     text := set_config('lock_timeout', p_wait, true);
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
            vacuums, staged, namespace, name, forked_from, v_extents, metadata, log_end, deadline)
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
    p_namespace bytea, p_name bytea, p_now bigint, p_limit bigint, p_without smallint[],
    p_cut integer, p_salt bigint,
    OUT o_now bigint, OUT o_number bigint, OUT o_life integer, OUT o_born bigint,
    OUT o_log_end bigint, OUT o_generation bigint, OUT o_deadline bigint, OUT o_staged boolean,
    OUT o_tail bigint, OUT o_extents bigint[], OUT o_created_at bigint, OUT o_metadata bytea,
    OUT o_forked_from bytea, OUT o_vacuums integer, OUT o_is_intact boolean,
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
        metadata, forked_from, vacuums, checksum = indelible.session_checksum(number, life, born,
            generation, tail, created_at, vacuums, staged, namespace, name, forked_from, extents,
            metadata, log_end, deadline)
    INTO o_number, o_life, o_born, o_log_end, o_generation, o_deadline, o_staged, o_tail, o_extents,
        o_created_at, o_metadata, o_forked_from, o_vacuums, o_is_intact
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
