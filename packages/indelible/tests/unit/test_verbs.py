"""The table of verbs names every public method, and so does all that is derived from it."""

import pytest
from typer.main import get_command

import indelible
from indelible import AsyncMemoryStore, MemoryStore
from indelible.cli.main import app
from indelible.core import audit, operations
from indelible.core.operations import Audited, ChangeView, Erase, IndexText, Reclaim, ShowStage
from indelible.core.plan import Operation
from indelible.core.verbs import COMMITTING_OPERATIONS, VERBS, StoreVerb
from indelible.testing import recording
from indelible.testing.faults import FAULT_VERBS, watching
from memory_contract.traces.recorder.hasher import Hasher, Policy
from tests.support.verbs import CALLS, list_parameters, prepare_session

# Methods that are about the object, not about what it stores.
LIFECYCLE = {"close"}


@pytest.mark.parametrize("store", [MemoryStore, AsyncMemoryStore])
def test_every_public_method_is_in_the_table(store):
    public = {name for name in vars(store) if not name.startswith("_")}
    assert public - LIFECYCLE == set(VERBS)


def test_a_read_writes_nothing():
    assert not any(verb.reads and verb.writes for verb in VERBS.values())


def test_an_operation_that_completes_no_write_is_a_read_or_a_part_of_one():
    kinds = {
        value
        for value in vars(operations).values()
        if isinstance(value, type) and issubclass(value, Operation) and value is not Operation
    }
    others = {kind.__name__ for kind in kinds - set(COMMITTING_OPERATIONS)}
    parts = {"BeginStage", "StageRows", "DropStage", "Scrub", "Identify"}
    assert all(name.startswith(("Read", "Find", "List", "Check")) for name in others - parts)


def test_every_change_of_a_session_has_a_line_in_its_audit():
    unnamed = set(COMMITTING_OPERATIONS) - set(audit._NAMES)
    # A view change has its own name; the next two change nothing that shows; the last is the line.
    others = {ChangeView, Reclaim, IndexText, Audited}
    assert unnamed == others, "name the operation in _NAMES of core/audit.py"


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
    noted = recording.build_verbs(Hasher(Policy(), b"key"), lambda _: None)
    assert set(noted) == set(VERBS)
    assert {name for name, verb in noted.items() if verb.removes} == {
        verb.name for verb in VERBS.values() if verb.removes
    }


def test_a_verb_that_the_recorder_cannot_describe_leaves_every_session_undecided():
    for commits in (ShowStage, Erase):
        noted = recording._describe_verb(StoreVerb("rename_session", commits)).describe("a", "b")
        assert (noted.every, noted.changes) == (True, True)


def test_commands_take_a_key_where_their_verbs_do():
    named = {"append": "add_message", "rollback": "rollback_to_snapshot", "import": "import_"}
    commands = get_command(app).commands
    assert set(named) <= commands.keys()
    for command in commands:
        verb = named.get(command, command)
        takes_key = verb in VERBS and "key" in list_parameters(verb)
        options = {each for parameter in commands[command].params for each in parameter.opts}
        assert ("--key" in options) == takes_key, command
