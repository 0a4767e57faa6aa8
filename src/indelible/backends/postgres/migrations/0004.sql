-- Format 4. No function depends on the caller's search_path: an operator or a function that another
-- role makes, and that fits its arguments better than PostgreSQL's own, is never found. Tables and
-- functions of ours are always written with their schema.

UPDATE indelible.about SET value = 4 WHERE name = 'format';

-- Bound to what it names when it is created, and put into the statements that use it.
CREATE OR REPLACE FUNCTION indelible.now_ms(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);

-- A number as stored views have it. No backslash in a literal: whether that is an escape is a setting.
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

ALTER FUNCTION indelible.append(bytea, bytea, bytea, text, bigint, bigint, text, smallint, boolean,
    text, text, bytea, integer) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.append_batch(bytea, bytea, bytea, text, bigint, bigint, text, smallint,
    boolean, text, text, bytea, smallint[], boolean[], text[], text[], bytea[])
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.append_many(bytea, bigint, bigint, text, bytea[], integer[], integer[],
    integer[], smallint[], boolean[], bytea[], text[], text[], bytea[])
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.with_vectors(text, integer[], bytea[], text[])
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.last_stop(bytea) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.save_snapshot(bytea, bytea, bigint, text, bytea, bytea)
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.roll_back(bytea, bytea, bigint, text, text, bytea, bytea, bytea)
    SET search_path = pg_catalog, pg_temp;
