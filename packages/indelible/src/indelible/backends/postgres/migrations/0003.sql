-- Format 3. Functions only: many appends, a snapshot and a rollback take one statement each. Code of
-- formats 1 and 2 can go on working with these tables, which are as they were.

UPDATE indelible.about SET value = 3 WHERE name = 'format';

-- Appends of several sessions, each with one entry or more; nothing is expected of any of them, and
-- all have one time to live. Names come in the order in which everyone takes them; entries stand in
-- the order of names, with the index of theirs in p_which. Returns the version after each session's
-- last entry, with commas between; where one is empty, nothing was written to that session, and
-- somebody must look and decide. A key that was used raises unique_violation: then all is as before.
CREATE FUNCTION indelible.append_many(
    p_namespace bytea, p_now bigint, p_ttl bigint, p_wait text, p_names bytea[], p_counts integer[],
    p_which integer[], p_batches integer[], p_kinds smallint[], p_keeps boolean[], p_keys bytea[],
    p_opens text[], p_answers text[], p_payloads bytea[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_wait        text := set_config('lock_timeout', p_wait, true);
    v_count       integer;
    v_before      integer := 0; -- entries of the sessions before this one
    v_now         bigint;
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
        UPDATE indelible.session SET log_end = log_end + v_count, deadline = v_now + p_ttl
        WHERE namespace = p_namespace AND name = p_names[v_nth] AND NOT staged
            AND (deadline IS NULL OR deadline > v_now) AND log_end + v_count <= 4294967296
        RETURNING number, life, log_end, generation, vacuums
        INTO v_number, v_life, v_end, v_generation, v_vacuums;
        IF NOT FOUND THEN
            INSERT INTO indelible.session (namespace, name, log_end, deadline, born, tail,
                created_at)
            VALUES (p_namespace, p_names[v_nth], v_count, v_now + p_ttl, 0, 0, v_now)
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
        kind, keep, key, opens, answers, payload)
    SELECT v_numbers[which], v_bases[which] + nth, v_times[which], v_times[which] + p_ttl,
        v_generations[which], v_lives[which], batch, kind, keep, key, opens, answers, payload
    FROM unnest(p_which, p_batches, p_kinds, p_keeps, p_keys, p_opens, p_answers, p_payloads)
        WITH ORDINALITY AS row (which, batch, kind, keep, key, opens, answers, payload, nth)
    WHERE v_numbers[which] IS NOT NULL;
    RETURN substr(v_versions, 2);
END
$$;

-- Where the last extent of a stored view ends. NULL if that is damaged, or longer than what is worth
-- looking through here: then somebody must look who can say so.
CREATE FUNCTION indelible.last_stop(p_extents bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_bytes  integer := octet_length(p_extents);
    v_byte   integer;
    v_shift  integer := 0;
    v_number bigint := 0;
    v_length boolean := false;  -- gaps and lengths take turns
    v_at     bigint := 0;
BEGIN
    IF v_bytes > 64 THEN
        RETURN NULL;
    END IF;
    FOR v_nth IN 0 .. v_bytes - 1 LOOP
        v_byte := get_byte(p_extents, v_nth);
        v_number := v_number | ((v_byte & 127)::bigint << v_shift);
        v_shift := v_shift + 7;
        IF v_shift > 49 THEN
            RETURN NULL;
        END IF;
        IF v_byte < 128 THEN
            IF (v_byte = 0 AND v_shift > 7) OR (v_number = 0 AND (v_length OR v_at > 0)) THEN
                RETURN NULL;
            END IF;
            v_at := v_at + v_number;
            v_length := NOT v_length;
            v_number := 0;
            v_shift := 0;
        END IF;
    END LOOP;
    IF v_length OR v_shift > 0 THEN
        RETURN NULL;
    END IF;
    RETURN v_at;
END
$$;

-- A number as stored views have it.
CREATE FUNCTION indelible.varint(p_number bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_left  bigint := p_number;
    v_bytes bytea := '';
BEGIN
    WHILE v_left > 127 LOOP
        v_bytes := v_bytes || set_byte('\x00', 0, (v_left & 127)::integer | 128);
        v_left := v_left >> 7;
    END LOOP;
    RETURN v_bytes || set_byte('\x00', 0, v_left::integer);
END
$$;

-- A snapshot in one statement, if the session is active and its view is short and in order. Returns
-- when it was taken, the log's end, the tail and the extents; NULL means that nothing was written,
-- and that somebody must look. An id that was used raises unique_violation.
CREATE FUNCTION indelible.save_snapshot(
    p_namespace bytea, p_name bytea, p_now bigint, p_wait text, p_id bytea, p_label bytea
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_wait     text := set_config('lock_timeout', p_wait, true);
    v_now      bigint;
    v_number   bigint;
    v_life     integer;
    v_end      bigint;
    v_tail     bigint;
    v_extents  bytea;
    v_deadline bigint;
BEGIN
    SELECT number, life, log_end, tail, extents, deadline
    INTO v_number, v_life, v_end, v_tail, v_extents, v_deadline
    FROM indelible.session
    WHERE namespace = p_namespace AND name = p_name AND NOT staged FOR UPDATE;
    v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    IF v_number IS NULL OR v_deadline <= v_now OR v_tail > v_end
        OR (v_extents <> '' AND coalesce(indelible.last_stop(v_extents) >= v_tail, true))
    THEN
        RETURN NULL;
    END IF;
    INSERT INTO indelible.snapshot (session, life, id, label, taken_at, log_end, tail, extents)
    VALUES (v_number, v_life, p_id, p_label, v_now, v_end, v_tail, v_extents);
    RETURN v_now || '.' || v_end || '.' || v_tail || '.' || encode(v_extents, 'hex');
END
$$;

-- A rollback in one statement, if the session is active and as expected, the snapshot is there, and
-- both views are short and in order. Returns the session's number and life, and the journal's line:
-- time, generation, end, tails and extents before and after. NULL means that nothing was changed,
-- and that somebody must look. An operation that was done raises unique_violation.
CREATE FUNCTION indelible.roll_back(
    p_namespace bytea, p_name bytea, p_now bigint, p_wait text, p_expected text, p_snapshot bytea,
    p_operation bytea, p_change bytea
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
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
    WHERE namespace = p_namespace AND name = p_name AND NOT staged FOR UPDATE;
    v_now := coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);
    IF v_number IS NULL OR v_deadline <= v_now OR v_tail_before > v_end
        OR (v_before <> '' AND coalesce(indelible.last_stop(v_before) >= v_tail_before, true))
        OR p_expected <> v_number || '.' || v_life || '.' || v_end || '.' || v_generation
    THEN
        RETURN NULL;
    END IF;
    SELECT log_end, tail, extents INTO v_frozen_end, v_tail_after, v_after
    FROM indelible.snapshot
    WHERE session = v_number AND life = v_life AND id = p_snapshot;
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
    SET tail = v_tail_after, extents = v_after, generation = generation + 1
    WHERE namespace = p_namespace AND name = p_name;
    INSERT INTO indelible.journal (session, life, operation, change, changed_at, generation,
        log_end, tail_before, tail_after, extents_before, extents_after)
    VALUES (v_number, v_life, p_operation, p_change, v_now, v_generation + 1, v_end,
        v_tail_before, v_tail_after, v_before, v_after);
    RETURN v_number || '.' || v_life || '.' || v_now || '.' || (v_generation + 1) || '.' || v_end
        || '.' || v_tail_before || '.' || v_tail_after || '.' || encode(v_before, 'hex') || '.'
        || encode(v_after, 'hex');
END
$$;
