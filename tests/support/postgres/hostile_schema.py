"""Operators and functions in `public`, made by another role, that fit better than PostgreSQL's own.

PostgreSQL looks into `pg_catalog` first, but prefers whatever takes exactly the types at hand: for
`bigint || text` that is an operator of anybody, and not `anynonarray || text`.
"""

import itertools
import re
from importlib.resources import files

import psycopg

from indelible.backends import postgres

ATTACKER = "mallory"
APPLICATION = "application"
# Said by everything that she made, when it is run.
RAN = "hostile code ran"

TYPES = (
    *("boolean", "smallint", "integer", "bigint", "double precision", "text", "bytea", "oid"),
    *("bigint[]", "integer[]", "smallint[]", "bytea[]", "text[]", "real[]"),
)
COMPARE = ("=", "<>", "<", ">", "<=", ">=", "~~")
COMPUTE = ("+", "-", "*", "/", "%", "||", "&", "|", "#", "<<", ">>")

_RAISE = f"LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION '{RAN}'; END$$"


def hostile_statements(names):
    """Statements that make the functions, and an operator for each pair of types."""
    for name, one in itertools.product(names, TYPES):
        yield f'CREATE FUNCTION public."{name}"({one}) RETURNS {one} {_RAISE}'
        yield f'CREATE FUNCTION public."{name}"({one}, {one}) RETURNS {one} {_RAISE}'
    for left, right in itertools.product(TYPES, TYPES):
        pair = f"LEFTARG = {left}, RIGHTARG = {right}"
        result = right if right == "text" else left
        yield f"CREATE FUNCTION public.compare({left}, {right}) RETURNS boolean {_RAISE}"
        yield f"CREATE FUNCTION public.compute({left}, {right}) RETURNS {result} {_RAISE}"
        for operator in COMPARE:
            yield f"CREATE OPERATOR public.{operator} ({pair}, FUNCTION = public.compare)"
        for operator in COMPUTE:
            yield f"CREATE OPERATOR public.{operator} ({pair}, FUNCTION = public.compute)"


def used_functions(connection):
    """Names of PostgreSQL's own functions that stand anywhere in the backend's code."""
    folder = files(postgres)
    texts = [path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".py")]
    texts += [path.read_text("utf-8") for path in folder.joinpath("migrations").iterdir()]
    called = {name for text in texts for name in re.findall(r"([a-z_0-9]+)\(", text)}
    rows = connection.execute(
        "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
        " AND proname = ANY (%s)",
        (sorted(called),),
    )
    return [name for (name,) in rows.fetchall()]


def make_hostile_schema(url):
    """Let another role fill `public`, and return the URL of an application beside it."""
    with psycopg.connect(url, autocommit=True) as owner:
        for role in (ATTACKER, APPLICATION):
            if not owner.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchall():
                owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT CREATE ON SCHEMA public TO {ATTACKER}")
        owner.execute("CREATE EXTENSION IF NOT EXISTS vector")
        (database,) = owner.execute("SELECT quote_ident(current_database())").fetchone()
        owner.execute(f"GRANT CREATE ON DATABASE {database} TO {APPLICATION}")
        owner.execute(f"SET ROLE {ATTACKER}")
        names = used_functions(owner)
        assert {"cardinality", "array_agg", "set_config"} <= set(names)
        owner.execute(";".join(hostile_statements(names)))
    return url.replace("//postgres@", f"//{APPLICATION}@")
