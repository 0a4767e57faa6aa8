"""The table of verbs: it names every public method of a store, and what the signatures say."""

import inspect

import pytest
from typer.main import get_command

import indelible
from indelible import AsyncMemoryStore, MemoryStore
from indelible.cli.main import app, has_option
from indelible.core import operations
from indelible.core.plan import Operation
from indelible.core.verbs import COMMITTING_OPERATIONS, VERBS, VerbKind
from indelible.testing.faults import FAULT_VERBS, watching
from indelible.testing.recording import build_verbs
from memory_contract.traces.recorder.hasher import Hasher, Policy
from tests.support.verbs import CALLS, prepare_session

# Methods that are about the object, not about what it stores.
LIFECYCLE = {"close"}


@pytest.mark.parametrize("store", [MemoryStore, AsyncMemoryStore])
def test_every_public_method_is_in_the_table(store):
    public = {name for name in vars(store) if not name.startswith("_")}
    assert public - LIFECYCLE == set(VERBS)


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_the_table_says_what_the_signature_says(verb):
    _, *parameters = inspect.signature(getattr(MemoryStore, verb.name)).parameters.values()
    names = [parameter.name for parameter in parameters]
    assert verb.keyed == ("key" in names)
    assert verb.versioned == ("expected" in names)
    first = parameters[0] if parameters else None
    positional = first is not None and first.kind is not first.KEYWORD_ONLY
    assert verb.session_first == (positional and first.name == "session_id")


def test_reads_write_nothing_and_appends_remove_nothing():
    for verb in VERBS.values():
        assert not (verb.kind is VerbKind.READ and verb.writes)
        assert not (verb.kind is VerbKind.APPEND and verb.removes)
        assert verb.writes or not (verb.keyed or verb.versioned or verb.removes)


def test_an_operation_that_completes_no_write_is_a_read_or_a_part_of_one():
    kinds = {
        value
        for value in vars(operations).values()
        if isinstance(value, type) and issubclass(value, Operation) and value is not Operation
    }
    others = {kind.__name__ for kind in kinds - set(COMMITTING_OPERATIONS)}
    parts = {"BeginStage", "StageRows", "DropStage", "Scrub", "Identify", "ImportAudit"}
    assert all(name.startswith(("Read", "Find", "List", "Check")) for name in others - parts)


@pytest.fixture
def called():
    """A store that notes which verbs were called."""
    names = set()

    class Noting(MemoryStore):
        def __getattribute__(self, name):
            names.add(name)
            return super().__getattribute__(name)

    with indelible.open("memory:") as store:
        store.__class__ = Noting
        yield store, names


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_call_that_tests_share(called, verb):
    store, names = called
    at = prepare_session(store, "s", verb)
    names.clear()
    CALLS[verb](store, "s", at)
    assert verb in names


def test_every_verb_but_claims_can_be_made_to_fail():
    assert set(VERBS) - FAULT_VERBS == {"claims"}
    with watching() as faults, indelible.open("memory:") as store:
        for verb in FAULT_VERBS:
            faults.fail_next(verb)
            assert getattr(store, verb).__wrapped__.__func__ is getattr(MemoryStore, verb)
            if not VERBS[verb].writes:
                with pytest.raises(indelible.UsageError):
                    faults.lose_next_reply(verb)


def test_the_recorder_notes_every_verb():
    noted = build_verbs(Hasher(Policy(), b"key"), lambda _: None)
    assert set(noted) == set(VERBS)
    assert {name for name, verb in noted.items() if verb.removes} == {
        verb.name for verb in VERBS.values() if verb.removes
    }


def test_commands_take_a_key_where_their_verbs_do():
    named = {"append": "add_message", "rollback": "rollback_to_snapshot", "import": "import_"}
    commands = set(get_command(app).commands)
    assert set(named) <= commands
    for command in commands:
        verb = VERBS.get(named.get(command, command))
        assert has_option(command, "--key") == (verb is not None and verb.keyed), command
