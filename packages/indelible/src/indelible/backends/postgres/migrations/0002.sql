-- Format 2. A summary's row has its vector beside the payload, so that a server with pgvector can
-- compare. Code of format 1 can go on working with these tables: its functions are as they were, and
-- the summaries that it writes say nothing of their vector, which every search then looks at.

UPDATE indelible.about SET value = 2 WHERE name = 'format';

-- Types of plain PostgreSQL: the extension is not needed to store it. No row is rewritten for this.
ALTER TABLE indelible.entry
    ADD COLUMN embedder bytea,                  -- of a summary's vector; NULL if nothing is known
    ADD COLUMN vector   real[];                 -- at length one, in single precision; NULL if none

-- Puts vectors beside entries of an append, in its statement: the first argument is its answer, which
-- comes back. Entries are counted from the end; vectors are text, since an array of arrays would want
-- all of one length.
CREATE FUNCTION indelible.with_vectors(
    p_version text, p_backs integer[], p_embedders bytea[], p_vectors text[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_parts bigint[] := string_to_array(p_version, '.')::bigint[];
BEGIN
    UPDATE indelible.entry SET embedder = said.embedder, vector = said.vector::real[]
    FROM unnest(p_backs, p_embedders, p_vectors) AS said (back, embedder, vector)
    WHERE session = v_parts[1] AND position = v_parts[3] - said.back;
    RETURN p_version;
END
$$;
