-- Format 4. Rows have checksums, and no function depends on the caller's search_path. Code of older
-- formats writes no checksums, so it can no longer use these tables.
--
-- An operator or a function that another role makes, and that fits its arguments better than
-- PostgreSQL's own, is never found: functions in PL/pgSQL have a search_path of their own, and those
-- in SQL are bound to what they name when they are created. Tables and functions of ours are always
-- written with their schema.

UPDATE indelible.about SET value = 4 WHERE name IN ('format', 'oldest_format');

ALTER TABLE indelible.session ADD COLUMN checksum bigint;
ALTER TABLE indelible.entry ADD COLUMN checksum bigint;
ALTER TABLE indelible.snapshot ADD COLUMN checksum bigint;
ALTER TABLE indelible.journal ADD COLUMN checksum bigint;
ALTER TABLE indelible.kept_key ADD COLUMN checksum bigint;

CREATE OR REPLACE FUNCTION indelible.now_ms(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);

-- The checksum of an entry's content that its row's checksum stands for, if the row is where it was
-- written: see core/checksums.py. -1, which no content has, if there can be none.
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

-- A field of variable length, told apart from its neighbours.
CREATE FUNCTION indelible.field(p_value bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
RETURN coalesce(int8send(octet_length(p_value)) || p_value, int8send(-1));

-- 48 bits of SHA-256.
CREATE FUNCTION indelible.hash(p_fields bytea) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN ('x' || encode(substr(sha256(p_fields), 1, 6), 'hex'))::bit(48)::bigint;

-- The checksums of rows are computed in PL/pgSQL, which plans an expression once for a server process.
-- A function in SQL would be put into each statement that names it, and planned with it each time.
--
-- The checksum of a session's row. An append changes two of its fields, which are added, so that it
-- need not hash the others again. NULL if one of them is too large to be added, and so is damaged.
CREATE FUNCTION indelible.session_checksum(
    p_number bigint, p_life integer, p_born bigint, p_generation bigint, p_tail bigint,
    p_created_at bigint, p_vacuums integer, p_staged boolean, p_namespace bytea, p_name bytea,
    p_forked_from bytea, p_extents bytea, p_metadata bytea, p_log_end bigint, p_deadline bigint
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
            || indelible.field(p_extents) || indelible.field(p_metadata))
        + p_log_end + coalesce(p_deadline, 0);
END
$$;

CREATE FUNCTION indelible.snapshot_checksum(
    p_session bigint, p_life integer, p_number bigint, p_taken_at bigint, p_log_end bigint,
    p_tail bigint, p_id bytea, p_label bytea, p_extents bytea
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_number)
        || int8send(p_taken_at) || int8send(p_log_end) || int8send(p_tail) || indelible.field(p_id)
        || indelible.field(p_label) || indelible.field(p_extents));
END
$$;

CREATE FUNCTION indelible.journal_checksum(
    p_session bigint, p_life integer, p_generation bigint, p_changed_at bigint, p_log_end bigint,
    p_tail_before bigint, p_tail_after bigint, p_operation bytea, p_change bytea,
    p_undone_by bytea, p_extents_before bytea, p_extents_after bytea
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_generation)
        || int8send(p_changed_at) || int8send(p_log_end) || int8send(p_tail_before)
        || int8send(p_tail_after) || indelible.field(p_operation) || indelible.field(p_change)
        || indelible.field(p_undone_by) || indelible.field(p_extents_before)
        || indelible.field(p_extents_after));
END
$$;

CREATE FUNCTION indelible.kept_key_checksum(
    p_session bigint, p_life integer, p_position bigint, p_generation bigint, p_entries integer,
    p_key bytea, p_checksums bytea
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN indelible.hash(int8send(p_session) || int4send(p_life) || int8send(p_position)
        || int8send(p_generation) || int4send(p_entries) || indelible.field(p_key)
        || indelible.field(p_checksums));
END
$$;

-- Rows that were there before. Those of entries take more than PostgreSQL can compute: see schema.py.
UPDATE indelible.session SET checksum = indelible.session_checksum(number, life, born, generation,
    tail, created_at, vacuums, staged, namespace, name, forked_from, extents, metadata, log_end,
    deadline);
UPDATE indelible.snapshot SET checksum = indelible.snapshot_checksum(session, life, number, taken_at,
    log_end, tail, id, label, extents);
UPDATE indelible.journal SET checksum = indelible.journal_checksum(session, life, generation,
    changed_at, log_end, tail_before, tail_after, operation, change, undone_by, extents_before,
    extents_after);
UPDATE indelible.kept_key SET checksum = indelible.kept_key_checksum(session, life, position,
    generation, entries, key, checksums);
ALTER TABLE indelible.session ALTER COLUMN checksum SET NOT NULL;
ALTER TABLE indelible.snapshot ALTER COLUMN checksum SET NOT NULL;
ALTER TABLE indelible.journal ALTER COLUMN checksum SET NOT NULL;
ALTER TABLE indelible.kept_key ALTER COLUMN checksum SET NOT NULL;

-- As in format 1, with a checksum: p_checksum is that of the entry's content in this session, to which
-- its place is added. A session whose row is damaged is left to whoever can say so.
DROP FUNCTION indelible.append_batch;
DROP FUNCTION indelible.append;
CREATE FUNCTION indelible.append(
    p_namespace bytea, p_name bytea, p_key bytea, p_expected text, p_now bigint, p_ttl bigint,
    p_wait text, p_kind smallint, p_keep boolean, p_opens text, p_answers text, p_payload bytea,
    p_checksum bigint, p_count integer
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
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
    UPDATE indelible.session SET log_end = log_end + p_count, deadline = v_deadline,
        checksum = checksum + p_count + coalesce(v_deadline, 0) - coalesce(deadline, 0)
    WHERE namespace = p_namespace AND name = p_name AND NOT staged
        AND (deadline IS NULL OR deadline > v_now) AND log_end <= 4294967296 - p_count
        AND (p_expected IS NULL
            OR p_expected = number || '.' || life || '.' || log_end || '.' || generation)
        AND checksum = indelible.session_checksum(number, life, born, generation, tail, created_at,
            vacuums, staged, namespace, name, forked_from, extents, metadata, log_end, deadline)
    RETURNING number, life, log_end, generation, vacuums
    INTO v_number, v_life, v_end, v_generation, v_vacuums;
    IF NOT FOUND THEN
        IF p_expected IS NOT NULL THEN
            RETURN NULL;
        END IF;
        v_number := nextval('indelible.session_number');
        INSERT INTO indelible.session (number, namespace, name, log_end, deadline, born, tail,
            created_at, checksum)
        VALUES (v_number, p_namespace, p_name, p_count, v_deadline, 0, 0, v_now,
            indelible.session_checksum(v_number, 1, 0, 0, 0, v_now, 0, false, p_namespace, p_name,
                NULL, '', '{}', p_count, v_deadline))
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
        kind, keep, key, opens, answers, payload, checksum)
    VALUES (v_number, v_end - p_count, v_now, v_deadline, v_generation, v_life, p_count,
        p_kind, p_keep, p_key, p_opens, p_answers, p_payload, p_checksum + v_end - p_count + v_now
            + coalesce(v_deadline, 0) + v_generation + p_count);
    RETURN v_number || '.' || v_life || '.' || v_end || '.' || v_generation;
END
$$;

-- The same for a batch: its first entry, and an array for each column of the others.
CREATE FUNCTION indelible.append_batch(
    p_namespace bytea, p_name bytea, p_key bytea, p_expected text, p_now bigint, p_ttl bigint,
    p_wait text, p_kind smallint, p_keep boolean, p_opens text, p_answers text, p_payload bytea,
    p_checksum bigint, p_kinds smallint[], p_keeps boolean[], p_all_opens text[],
    p_all_answers text[], p_payloads bytea[], p_checksums bigint[]
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_more    integer := cardinality(p_payloads);
    v_version text := indelible.append(p_namespace, p_name, p_key, p_expected, p_now, p_ttl,
        p_wait, p_kind, p_keep, p_opens, p_answers, p_payload, p_checksum, 1 + v_more);
    v_parts   bigint[] := string_to_array(v_version, '.')::bigint[];
BEGIN
    IF v_version IS NOT NULL THEN
        INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life,
            batch, kind, keep, opens, answers, payload, checksum)
        SELECT one.session, one.position + nth, one.written_at, one.deadline, one.generation,
            one.life, 0, more.kind, more.keep, more.opens, more.answers, more.payload,
            more.checksum + one.position + nth + one.written_at + coalesce(one.deadline, 0)
                + one.generation
        FROM indelible.entry AS one,
            unnest(p_kinds, p_keeps, p_all_opens, p_all_answers, p_payloads, p_checksums)
                WITH ORDINALITY AS more (kind, keep, opens, answers, payload, checksum, nth)
        WHERE one.session = v_parts[1] AND one.position = v_parts[3] - 1 - v_more;
    END IF;
    RETURN v_version;
END
$$;

-- As in format 3, with checksums.
DROP FUNCTION indelible.append_many;
CREATE FUNCTION indelible.append_many(
    p_namespace bytea, p_now bigint, p_ttl bigint, p_wait text, p_names bytea[], p_counts integer[],
    p_which integer[], p_batches integer[], p_kinds smallint[], p_keeps boolean[], p_keys bytea[],
    p_opens text[], p_answers text[], p_payloads bytea[], p_checksums bigint[]
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wait        text := set_config('lock_timeout', p_wait, true);
    v_count       integer;
    v_before      integer := 0; -- entries of the sessions before this one
    v_now         bigint;
    v_deadline    bigint;
    v_number      bigint;
    v_life        integer;
    v_end         bigint;
    v_generation  bigint;
    v_vacuums     integer;
    v_times       bigint[];
    v_numbers     bigint[];
    v_lives       integer[];
    v_bases       bigint[];     -- what makes an entry's place among all its position
    v_generations bigint[];
    v_versions    text := '';
BEGIN
    FOR v_nth IN 1 .. cardinality(p_names) LOOP
        v_count := p_counts[v_nth];
        v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
        v_deadline := v_now + p_ttl;
        UPDATE indelible.session SET log_end = log_end + v_count, deadline = v_deadline,
            checksum = checksum + v_count + coalesce(v_deadline, 0) - coalesce(deadline, 0)
        WHERE namespace = p_namespace AND name = p_names[v_nth] AND NOT staged
            AND (deadline IS NULL OR deadline > v_now) AND log_end <= 4294967296 - v_count
            AND checksum = indelible.session_checksum(number, life, born, generation, tail,
                created_at, vacuums, staged, namespace, name, forked_from, extents, metadata,
                log_end, deadline)
        RETURNING number, life, log_end, generation, vacuums
        INTO v_number, v_life, v_end, v_generation, v_vacuums;
        IF NOT FOUND THEN
            v_number := nextval('indelible.session_number');
            INSERT INTO indelible.session (number, namespace, name, log_end, deadline, born, tail,
                created_at, checksum)
            VALUES (v_number, p_namespace, p_names[v_nth], v_count, v_deadline, 0, 0, v_now,
                indelible.session_checksum(v_number, 1, 0, 0, 0, v_now, 0, false, p_namespace,
                    p_names[v_nth], NULL, '', '{}', v_count, v_deadline))
            ON CONFLICT DO NOTHING
            RETURNING number, life, log_end, generation, vacuums
            INTO v_number, v_life, v_end, v_generation, v_vacuums;
        END IF;
        IF v_vacuums > 0 THEN
            -- A statement of its own, behind the row's lock: it sees what every vacuum before left.
            PERFORM FROM indelible.kept_key
            WHERE session = v_number AND life = v_life
                AND key = ANY (p_keys[v_before + 1 : v_before + v_count]);
            IF FOUND THEN
                RAISE unique_violation USING MESSAGE = 'the key was used';
            END IF;
        END IF;
        v_times[v_nth] := v_now;
        v_numbers[v_nth] := v_number;
        v_lives[v_nth] := v_life;
        v_bases[v_nth] := v_end - v_count - v_before - 1;
        v_generations[v_nth] := v_generation;
        v_before := v_before + v_count;
        v_versions := v_versions || ','
            || coalesce(v_number || '.' || v_life || '.' || v_end || '.' || v_generation, '');
    END LOOP;
    INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life, batch,
        kind, keep, key, opens, answers, payload, checksum)
    SELECT v_numbers[which], v_bases[which] + nth, v_times[which], v_times[which] + p_ttl,
        v_generations[which], v_lives[which], batch, kind, keep, key, opens, answers, payload,
        checksum + v_bases[which] + nth + v_times[which] + coalesce(v_times[which] + p_ttl, 0)
            + v_generations[which] + batch
    FROM unnest(p_which, p_batches, p_kinds, p_keeps, p_keys, p_opens, p_answers, p_payloads,
        p_checksums) WITH ORDINALITY
        AS row (which, batch, kind, keep, key, opens, answers, payload, checksum, nth)
    WHERE v_numbers[which] IS NOT NULL;
    RETURN substr(v_versions, 2);
END
$$;

ALTER FUNCTION indelible.with_vectors(text, integer[], bytea[], text[])
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.last_stop(bytea) SET search_path = pg_catalog, pg_temp;

-- As in format 3. No backslash in a literal: whether that is an escape is a setting.
CREATE OR REPLACE FUNCTION indelible.varint(p_number bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_left  bigint := p_number;
    v_byte  bytea := decode('00', 'hex');
    v_bytes bytea := '';
BEGIN
    WHILE v_left > 127 LOOP
        v_bytes := v_bytes || set_byte(v_byte, 0, (v_left & 127)::integer | 128);
        v_left := v_left >> 7;
    END LOOP;
    RETURN v_bytes || set_byte(v_byte, 0, v_left::integer);
END
$$;

-- As in format 3, with checksums. What is damaged is left to whoever can say so.
CREATE OR REPLACE FUNCTION indelible.save_snapshot(
    p_namespace bytea, p_name bytea, p_now bigint, p_wait text, p_id bytea, p_label bytea
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wait     text := set_config('lock_timeout', p_wait, true);
    v_now      bigint;
    v_number   bigint;
    v_life     integer;
    v_end      bigint;
    v_tail     bigint;
    v_extents  bytea;
    v_deadline bigint;
    v_nth      bigint;
BEGIN
    SELECT number, life, log_end, tail, extents, deadline
    INTO v_number, v_life, v_end, v_tail, v_extents, v_deadline
    FROM indelible.session
    WHERE namespace = p_namespace AND name = p_name AND NOT staged
        AND checksum = indelible.session_checksum(number, life, born, generation, tail, created_at,
            vacuums, staged, namespace, name, forked_from, extents, metadata, log_end, deadline)
    FOR UPDATE;
    v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    IF v_number IS NULL OR v_deadline <= v_now OR v_tail > v_end
        OR (v_extents <> '' AND coalesce(indelible.last_stop(v_extents) >= v_tail, true))
    THEN
        RETURN NULL;
    END IF;
    v_nth := nextval('indelible.snapshot_number');
    INSERT INTO indelible.snapshot (session, life, number, id, label, taken_at, log_end, tail,
        extents, checksum)
    VALUES (v_number, v_life, v_nth, p_id, p_label, v_now, v_end, v_tail, v_extents,
        indelible.snapshot_checksum(v_number, v_life, v_nth, v_now, v_end, v_tail, p_id, p_label,
            v_extents));
    RETURN v_now || '.' || v_end || '.' || v_tail || '.' || encode(v_extents, 'hex');
END
$$;

CREATE OR REPLACE FUNCTION indelible.roll_back(
    p_namespace bytea, p_name bytea, p_now bigint, p_wait text, p_expected text, p_snapshot bytea,
    p_operation bytea, p_change bytea
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_wait        text := set_config('lock_timeout', p_wait, true);
    v_now         bigint;
    v_number      bigint;
    v_life        integer;
    v_end         bigint;
    v_generation  bigint;
    v_before      bytea;
    v_tail_before bigint;
    v_after       bytea;
    v_tail_after  bigint;
    v_deadline    bigint;
    v_frozen_end  bigint;
    v_stop        bigint := 0;
BEGIN
    SELECT number, life, log_end, generation, tail, extents, deadline
    INTO v_number, v_life, v_end, v_generation, v_tail_before, v_before, v_deadline
    FROM indelible.session
    WHERE namespace = p_namespace AND name = p_name AND NOT staged
        AND checksum = indelible.session_checksum(number, life, born, generation, tail, created_at,
            vacuums, staged, namespace, name, forked_from, extents, metadata, log_end, deadline)
    FOR UPDATE;
    v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    IF v_number IS NULL OR v_deadline <= v_now OR v_tail_before > v_end
        OR (v_before <> '' AND coalesce(indelible.last_stop(v_before) >= v_tail_before, true))
        OR p_expected <> v_number || '.' || v_life || '.' || v_end || '.' || v_generation
    THEN
        RETURN NULL;
    END IF;
    SELECT log_end, tail, extents INTO v_frozen_end, v_tail_after, v_after
    FROM indelible.snapshot
    WHERE session = v_number AND life = v_life AND id = p_snapshot
        AND checksum = indelible.snapshot_checksum(session, life, number, taken_at, log_end, tail,
            id, label, extents);
    IF v_after <> '' THEN
        v_stop := indelible.last_stop(v_after);
    END IF;
    IF v_after IS NULL OR v_stop IS NULL OR (v_after <> '' AND v_stop >= v_tail_after)
        OR v_tail_after > v_frozen_end OR v_frozen_end > v_end
    THEN
        RETURN NULL;
    END IF;
    -- What it froze shows from now on, and whatever comes behind the end of the log. If nothing was
    -- appended since, the last that it froze runs into that.
    IF v_tail_after = v_frozen_end THEN
        v_tail_after := v_end;
    ELSIF v_frozen_end < v_end THEN
        v_after := v_after || indelible.varint(v_tail_after - v_stop)
            || indelible.varint(v_frozen_end - v_tail_after);
        v_tail_after := v_end;
    END IF;
    UPDATE indelible.session
    SET tail = v_tail_after, extents = v_after, generation = generation + 1,
        checksum = indelible.session_checksum(number, life, born, generation + 1, v_tail_after,
            created_at, vacuums, staged, namespace, name, forked_from, v_after, metadata, log_end,
            deadline)
    WHERE namespace = p_namespace AND name = p_name;
    INSERT INTO indelible.journal (session, life, operation, change, changed_at, generation,
        log_end, tail_before, tail_after, extents_before, extents_after, checksum)
    VALUES (v_number, v_life, p_operation, p_change, v_now, v_generation + 1, v_end,
        v_tail_before, v_tail_after, v_before, v_after,
        indelible.journal_checksum(v_number, v_life, v_generation + 1, v_now, v_end,
            v_tail_before, v_tail_after, p_operation, p_change, NULL, v_before, v_after));
    RETURN v_number || '.' || v_life || '.' || v_now || '.' || (v_generation + 1) || '.' || v_end
        || '.' || v_tail_before || '.' || v_tail_after || '.' || encode(v_before, 'hex') || '.'
        || encode(v_after, 'hex');
END
$$;
