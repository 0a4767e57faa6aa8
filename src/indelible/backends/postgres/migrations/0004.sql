-- Format 4. No function depends on the caller's search_path: an operator or a function that another
-- role makes, and that fits its arguments better than PostgreSQL's own, is never found. Tables and
-- functions of ours are always written with their schema.

UPDATE indelible.about SET value = 4 WHERE name = 'format';

-- Bound to what it names when it is created, and put into the statements that use it.
CREATE OR REPLACE FUNCTION indelible.now_ms(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN coalesce(p_now, floor(date_part('epoch', clock_timestamp()) * 1000)::bigint);

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
ALTER FUNCTION indelible.varint(bigint) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.save_snapshot(bytea, bytea, bigint, text, bytea, bytea)
    SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION indelible.roll_back(bytea, bytea, bigint, text, text, bytea, bytea, bytea)
    SET search_path = pg_catalog, pg_temp;
