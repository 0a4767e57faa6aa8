"""Classes that declare nothing: how the kit finds out what they are, and accuses none wrongly."""

import functools
from dataclasses import replace

import pytest

from memory_contract import Adapter, Refused, Unreachable, check
from memory_contract.report.text import reproduce
from memory_contract.runner import StoreUnderTest
from memory_contract.targets import TargetError, find_factory_source, probe, resolve
from memory_contract.targets.factory import write_factory
from tests.support.kit import class_stores
from tests.support.kit.goldfish_stores import RIGHT

CASES = [
    "append_then_read",
    "capabilities_are_true",
    "fresh_store_is_empty",
    "short_programs",
    "workspaces_stay_apart",
]


def taken(name):
    adapter = resolve(f"tests.support.kit.class_stores:{name}")
    opener = adapter.open or adapter.open_async
    return adapter, opener


def verdicts(name, *cases):
    report = check(f"tests.support.kit.class_stores:{name}", cases=cases or CASES, seed=1)
    return {r.id: (r.verdict, r.reason) for r in report.results if r.verdict != "NOT CLAIMED"}


def failures(name, *cases):
    return {id_: why for id_, why in verdicts(name, *cases).items() if why[0] != "PASS"}


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("Kept", ("folder",)),
        ("KeywordOnly", ("folder",)),
        ("WorkspaceBesideOthers", ("folder",)),
        ("FolderByDefault", ("folder",)),
        ("FileInMemory", ("file",)),
        ("FileThatMustBeGiven", ("file",)),
        ("TextThatMustBeGiven", ("folder",)),
    ],
)
def test_a_class_whose_constructor_takes_one_path_is_given_one(name, takes, tmp_path):
    adapter, opener = taken(name)
    assert opener.factory.takes == takes
    assert adapter.reach == "machine"
    adapter.open(tmp_path).append("s", [{"role": "user", "content": "here"}])
    assert any(tmp_path.iterdir())
    assert not list(class_stores.HERE.glob("never*")), "nobody writes to a place of its own"


def shown(name, takes="workspace"):
    return (
        f"from tests.support.kit.class_stores import {name}\n\n\n"
        f"def make_store({takes}):\n"
        f"    return {name}(...)  # with its data in the folder `workspace`\n"
    )


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("OnAServer", "host, port"),
        ("FolderAndName", "data_dir, db_name"),
        ("PathBesideOthers", "path, name"),
        ("UrlByDefault", "url"),
        ("Settings", "ttl, embedder"),
        ("Limit", "max_messages"),
        ("make_from_two", "host, port"),
    ],
)
def test_any_other_constructor_is_refused_with_the_factory_to_write(name, takes):
    with pytest.raises(
        TargetError, match=f"tests.support.kit.class_stores:{name} takes {takes}"
    ) as refused:
        resolve(f"tests.support.kit.class_stores:{name}")
    assert refused.value.hint == shown(name)
    compile(refused.value.hint, "factory", "exec")


def test_the_factory_of_a_store_of_many_sessions_takes_none():
    with pytest.raises(
        TargetError, match=r"PathAndSession makes .* must take \(workspace"
    ) as refused:
        resolve("tests.support.kit.class_stores:PathAndSession")
    assert refused.value.hint == shown("PathAndSession")


def test_the_factory_of_stores_of_one_session_says_so():
    source = write_factory(
        class_stores.PathAndSession, "tests.support.kit.class_stores:PathAndSession"
    )
    assert source.endswith(
        "def make_store(session_id, workspace):\n"
        "    return PathAndSession(...)"
        "  # for this session, with its data in the folder `workspace`\n"
    )


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("FileThatMustBeGiven", ""),
        ("make_kept", ""),
        ("PathBesideOthers", shown("PathBesideOthers")),
    ],
)
def test_a_factory_is_written_for_what_cannot_be_checked_as_it_is(name, source):
    assert find_factory_source(f"tests.support.kit.class_stores:{name}") == source


@pytest.mark.parametrize(
    ("name", "reach", "flavours"),
    [
        ("make_kept", "machine", (True, False)),
        ("make_opened", "machine", (True, False)),
        ("make_awaited", "machine", (False, True)),
        ("make_in_memory", "handle", (True, False)),
        ("make_from_nothing", "handle", (True, False)),
        ("make_shared", "process", (True, False)),
    ],
)
def test_a_factory_is_asked_what_it_makes(name, reach, flavours):
    adapter, _ = taken(name)
    assert (adapter.open is not None, adapter.open_async is not None) == flavours
    assert adapter.reach == reach
    assert failures(name) == {}


@pytest.mark.parametrize(
    ("name", "kind"), [("make_in_current_folder", "Notes"), ("FixedPlace", "FixedPlace")]
)
def test_a_store_that_is_told_no_place_does_not_write_to_the_users_file(
    name, kind, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    # The current folder is that of the whole process: it stays, also for a moment.
    monkeypatch.setattr("os.chdir", None)
    with pytest.raises(
        TargetError, match=r"takes no workspace.* writes to class_stores_notes\.db"
    ) as refused:
        resolve(f"tests.support.kit.class_stores:{name}")
    assert list(tmp_path.iterdir()) == []
    assert refused.value.hint == shown(kind)


def test_a_factory_with_one_place_for_all_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TargetError, match="one place for all of its data, and now a session"):
        resolve("tests.support.kit.class_stores:make_in_home")


def test_a_factory_that_gives_no_store_is_refused_in_words():
    with pytest.raises(TargetError, match="make_number returned int, which speaks no vocabulary"):
        resolve("tests.support.kit.class_stores:make_number")
    with pytest.raises(Unreachable, match="ConnectionError: nobody is there"):
        resolve("tests.support.kit.class_stores:make_nothing")


def test_a_factory_of_a_server_alone_gets_sessions_that_no_other_case_has(tmp_path):
    adapter, _ = taken("make_on_server")
    assert adapter.server == "redis://localhost:1"
    assert failures("make_on_server", *CASES, "sessions_are_listed") == {}
    one, two = (adapter.open(tmp_path / name) for name in ("one", "two"))
    one.append("s", [{"role": "user", "content": "here"}])
    assert (one.sessions(), two.sessions()) == (["s"], [])
    assert two.read("s") == []


@pytest.mark.parametrize(
    ("name", "form", "batches"),
    [
        ("RoleAndContent", "texts", False),
        ("ContentAndRole", "texts", False),
        ("OneDict", "dict", False),
        ("OneObject", "object", False),
        ("SessionLast", "texts", False),
        ("CustomerLast", "texts", False),
        ("SessionByKeyword", "texts", False),
        ("MessagesThenSession", "object", True),
        ("Dicts", "dict", True),
        ("Kept", "object", True),
        ("OneAnnotated", "class", False),
        ("Annotated", "class", True),
    ],
)
def test_a_message_is_passed_as_the_store_takes_it(name, form, batches):
    adapter, opener = taken(name)
    assert (opener.options["form"], adapter.batches) == (form, batches)
    assert failures(name) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("Decorated", "InThreads", "HalfAwaited", "AsyncGenerator", "MadeOnALoop"),
        "TurnsAwaitedAlone",
    ],
)
def test_what_is_awaited_is_seen_by_what_calls_return(name):
    adapter, _ = taken(name)
    assert (adapter.open, adapter.open_async is not None) == (None, True)
    assert adapter.notes == ()
    assert failures(name) == {}


def test_an_async_half_that_is_not_written_is_not_driven():
    adapter, _ = taken("TurnObjects")
    assert adapter.open_async is None
    assert "not driven async: NotImplementedError: some day" in adapter.notes
    assert failures("TurnObjects") == {}


@pytest.mark.parametrize(
    "name",
    [
        *("EnumRoles", "EnumRolesInDicts", "NoneAtFirst", "TurnTuples", "TurnsSessionLast"),
        *("RolesOfLangChain", "HistoryInADict", "HistoryObject"),
    ],
)
def test_what_says_the_same_in_another_form_is_the_same(name):
    assert failures(name, *CASES, "unicode_survives") == {}


@pytest.mark.parametrize(
    ("name", "offers"),
    [
        ("ClearsAll", set()),
        ("ClearsIfSure", set()),
        ("ForksIntoNew", set()),
        ("PopsMany", {"pop"}),
        ("PopRaises", {"pop"}),
        ("ClearRaises", {"clear"}),
        ("TrimRaises", {"trim"}),
        ("ListsDicts", {"list"}),
        ("ListsRows", {"list"}),
        ("NamesAreNoMethods", set()),
        ("Snapshots", {"snapshot", "rollback"}),
        ("NamedSnapshots", {"snapshot", "rollback"}),
        ("LabelledSnapshots", {"snapshot", "rollback"}),
        ("NameFirst", set()),
        ("StateOfTheCaller", set()),
        ("SnapshotFirst", {"snapshot"}),
    ],
)
def test_a_method_is_used_only_for_what_it_can_be_called_for(name, offers):
    adapter, _ = taken(name)
    assert adapter.capabilities == offers
    more = ["pop_from_the_end", "sessions_are_listed", "clear_then_append", "trim_keeps_the_newest"]
    more += ["rollback_there_and_back"]
    assert failures(name, *CASES, *more) == {}


def test_what_fails_a_trial_is_told_and_not_held_against_a_class():
    adapter, _ = taken("ClearDoesNothing")
    assert adapter.capabilities == set()
    assert len(adapter.notes) == len(check(adapter, cases=CASES, seed=1).notes), "told once"
    told = "\n".join(adapter.notes)
    assert "not claimed: clear (clear did something else when it was tried)" in told
    assert "not claimed: fork (fork raised NotImplementedError: some day)" in told
    assert "not claimed: pop (pop raised IsAwaited" in told
    assert failures("ClearDoesNothing") == {}


def test_a_trial_that_fails_once_is_told():
    assert "not driven blocking: TimeoutError: busy" in taken("FailsOnce")[0].notes
    told = taken("OpensAtTheSecondTry")[0].notes
    assert "not driven blocking: RuntimeError: can't start new thread" in told


def test_a_rollback_that_does_nothing_is_held_against_a_class():
    adapter, _ = taken("SnapshotsByReference")
    assert adapter.capabilities == {"snapshot", "rollback"}
    assert failures("SnapshotsByReference", "rollback_is_exact")


def test_a_lookup_error_of_a_rollback_says_that_the_snapshot_is_lost():
    name = "tests.support.kit.class_stores:RollbackDropsLater"
    report = check(name, cases=["rollback_there_and_back"], seed=1)
    (result,) = report.results
    assert (result.verdict, result.failures[0].name) == ("FAIL", "lost snapshot"), result.reason


def test_what_works_once_is_held_to_it():
    assert "clear" in taken("ClearTakesMore")[0].capabilities
    assert failures("ClearTakesMore", "similar_session_ids")


def test_a_session_that_is_not_there_is_a_refusal_or_nothing(tmp_path):
    for name, call in (("ClearRaises", "clear"), ("TrimRaises", "trim")):
        handle = taken(name)[0].open(tmp_path)
        with pytest.raises(Refused, match="KeyError"):
            getattr(handle, call)("nobody", *([2] if call == "trim" else []))
    assert taken("PopRaises")[0].open(tmp_path).pop("nobody") is None


def test_the_store_itself_is_asked_what_is_no_text():
    assert failures("WritesItsDescription", "unserialisable_is_refused")
    assert failures("WritesItsDescription", "refused_append_leaves_nothing")
    for name in ("Kept", "WritesItsDump"):
        cases = ["unserialisable_is_refused", "refused_append_leaves_nothing", "unicode_survives"]
        assert failures(name, *cases) == {}


def test_a_class_that_hangs_does_not_hang_the_trial(monkeypatch):
    monkeypatch.setattr(probe, "PROBE_S_MAX", 0.2)
    adapter, _ = taken("NeverAnswers")
    assert adapter.open is not None
    assert any("did not end" in note for note in adapter.notes)


async def test_a_class_can_be_tried_from_a_running_loop():
    assert taken("Decorated")[0].open_async is not None


def test_a_handle_is_async_if_its_calls_are_whatever_they_look_like():
    async def later():
        return []

    class Handle:
        def append(self, session, messages):
            return later()

        def read(self, session):
            return later()

    class Wrapped(Handle):
        @class_stores.logged
        async def append(self, session, messages): ...

        def read(self, session):
            return []

    class Partial(Handle):
        read = functools.partialmethod(Handle.read)

    def find_flavours(kind):
        subject = StoreUnderTest(Adapter(open=lambda _: kind(), reach="handle"))
        subject.close()
        return subject.flavours

    for kind in (Handle, Wrapped, Partial):
        assert find_flavours(kind) == ("async",)

    class Blocking(Handle):
        def append(self, session, messages): ...

        def read(self, session):
            return []

    assert find_flavours(Blocking) == ("blocking",)


# Claims on what the kit takes as it is


@pytest.mark.parametrize(
    "opened", ["tests.support.kit.class_stores:Kept", class_stores.Kept, class_stores.make_kept]
)
def test_a_store_that_check_takes_can_be_claimed_more_of(opened, tmp_path):
    adapter = resolve(Adapter(open=opened, name="kept", durability="power", notes=("mine",)))
    found = resolve("tests.support.kit.class_stores:Kept")
    assert (adapter.durability, adapter.name) == ("power", "kept")
    assert (adapter.reach, adapter.batches) == (found.reach, found.batches)
    assert "mine" in adapter.notes
    adapter.open(tmp_path).append("s", [{"role": "user", "content": "here"}])
    report = check(adapter, cases=CASES, seed=1)
    assert report.verdict == "PASS"


def test_a_claim_is_what_the_store_is_held_to():
    unsynced = Adapter(open="tests.support.kit.class_stores:Unsynced", durability="power")
    report = check(unsynced, cases=["power_loss"], seed=1)
    assert {result.verdict for result in report.results} == {"FAIL"}


def test_capabilities_that_are_named_are_the_ones_that_are_claimed():
    assert resolve(
        Adapter(open="tests.support.kit.class_stores:PopsMany", capabilities={"fields"})
    ).capabilities == {"fields"}
    with pytest.raises(
        TargetError, match=r"tests.support.kit.class_stores:Kept is said to offer undo"
    ):
        resolve(Adapter(open="tests.support.kit.class_stores:Kept", capabilities={"undo"}))


def test_a_server_can_be_named_for_a_class_that_must_be_told_one(tmp_path):
    with pytest.raises(TargetError, match="names none"):
        resolve("tests.support.kit.class_stores:NamedServer")
    adapter = resolve(
        Adapter(open="tests.support.kit.class_stores:NamedServer", server="redis://localhost:1")
    )
    assert adapter.server == "redis://localhost:1"
    adapter.open(tmp_path).append("s", [{"role": "user", "content": "here"}])
    assert adapter.open(tmp_path).read("s")


def test_an_adapter_of_a_handle_is_left_as_it_is():
    class Handle:
        def append(self, session, messages): ...

        def read(self, session):
            return []

    for opened in (Handle, lambda workspace: Handle(), "goldfish_not_there:Store"):
        adapter = Adapter(open=opened)
        if isinstance(opened, str):
            with pytest.raises(TargetError, match="cannot import"):
                resolve(adapter)
        else:
            assert resolve(adapter) is adapter


@pytest.mark.parametrize(
    ("name", "keeps_last"), [("NewestTwenty", 20), ("NewestTen", 10), ("NewestTurns", 6)]
)
def test_a_window_that_is_claimed_is_what_the_store_is_judged_by(name, keeps_last):
    cases = [*CASES, "order_of_single_appends", "batch_in_order", "unicode_survives"]
    for options in (
        {"target": f"tests.support.kit.class_stores:{name}", "keeps_last": keeps_last},
        {"target": Adapter(open=f"tests.support.kit.class_stores:{name}", keeps_last=keeps_last)},
    ):
        report = check(**options, cases=cases, seed=1)
        assert report.verdict == "PASS", [(r.id, r.reason) for r in report.results]


@pytest.mark.parametrize(
    ("name", "claimed"), [("NewestTen", 20), ("NewestTwenty", 10), ("Kept", 20)]
)
def test_a_window_of_another_size_is_accused(name, claimed):
    report = check(
        f"tests.support.kit.class_stores:{name}",
        keeps_last=claimed,
        cases=["order_of_single_appends"],
        seed=1,
    )
    assert report.verdict == "FAIL"
    assert f"--keeps-last {claimed} " in reproduce(report, report.results[0])


def test_a_store_that_keeps_a_window_is_not_asked_to_pop():
    adapter = RIGHT["list_that_shows_the_newest"]
    assert "pop" in adapter.capabilities
    report = check(adapter, cases=["pop_race", "capabilities_are_true"], seed=1)
    popped = [result for result in report.results if result.case == "pop_race"]
    assert {each.verdict for each in popped} == {"NOT CLAIMED"}
    assert {each.reason for each in popped} == {
        "a store that keeps only the newest entries is not asked to pop"
    }
    assert report.notes == ()
    # Nor is it told to claim what it would not be asked for.
    unclaimed = replace(adapter, capabilities=adapter.capabilities - {"pop"})
    assert check(unclaimed, cases=["capabilities_are_true"], seed=1).notes == ()


def test_a_window_holds_at_least_a_turn():
    with pytest.raises(ValueError, match="`keeps_last` is 1, and a turn is 2"):
        Adapter(open="tests.support.kit.class_stores:Kept", keeps_last=1)


@pytest.mark.parametrize("name", ["mystore.py", "./mystore.py", "mystore.py:open_store"])
def test_a_file_of_code_is_not_taken_for_a_store(name):
    with pytest.raises(TargetError, match=r"mystore:(make_store|open_store)"):
        resolve(name)


def test_a_conversation_in_one_text_is_refused_and_not_accused():
    with pytest.raises(TargetError, match="load_memory returned one text"):
        resolve("tests.support.kit.class_stores:OneText")


def test_a_history_that_is_no_list_of_messages_is_refused_and_not_accused():
    with pytest.raises(TargetError, match=r"get_history returned a dict, .* needs a list"):
        resolve("tests.support.kit.class_stores:DictByIndex")
    with pytest.raises(Unreachable, match=r"what it was given came back as .*Opaque object"):
        resolve("tests.support.kit.class_stores:OpaqueMessages")


def test_a_read_that_raises_for_an_unknown_session_is_judged_by_the_cases():
    found = failures("UnknownSessionsRaise", "append_then_read", "fresh_store_is_empty")
    assert list(found) == ["sequential/fresh_store_is_empty[blocking]"]


def test_a_store_that_takes_no_message_of_the_kit_is_not_accused():
    with pytest.raises(Unreachable, match=r"add_messages raised TypeError: replace\(\) .* Adapter"):
        resolve("tests.support.kit.class_stores:TakesItsOwnAlone")


def test_a_read_that_returns_few_by_default_is_asked_for_all():
    adapter, _ = taken("TenByDefault")
    assert adapter.notes == ("by default it returns only so many; read with limit=1000000",)
    assert failures("TenByDefault", "order_of_single_appends") == {}
    assert failures("PagesOfTwenty", "order_of_single_appends") == {}


@pytest.mark.parametrize("name", ["TenByDefault", "MessagesThenSession"])
def test_a_limit_that_gives_the_newest_is_claimed(name):
    adapter, _ = taken(name)
    assert "limit" in adapter.capabilities
    assert failures(name, "limit_gives_the_newest", "long_session", "random_programs") == {}


def test_a_limit_that_gives_the_oldest_is_noted():
    adapter, _ = taken("OldestFirst")
    assert "limit" not in adapter.capabilities
    assert any("not claimed: limit (get_history did something" in note for note in adapter.notes)
    assert failures("OldestFirst") == {}


@pytest.mark.parametrize(
    ("name", "capability", "case", "failure"),
    [
        ("LastFromTheFront", None, "limit_gives_the_newest", "wrong limit"),
        ("OldestFirst", "limit", "limit_gives_the_newest", "wrong limit"),
        ("OldestFirst", "limit", "capabilities_are_true", "untrue claim"),
        ("PopsTheOldest", "pop", "pop_from_the_end", "wrong pop"),
    ],
)
def test_a_method_that_leaves_no_doubt_or_is_claimed_is_judged(name, capability, case, failure):
    target = f"tests.support.kit.class_stores:{name}"
    claimed = target if capability is None else Adapter(open=target, capabilities={capability})
    (result,) = check(claimed, cases=[case], seed=1).results
    assert (result.verdict, result.failures[0].name) == ("FAIL", failure), result.reason


@pytest.mark.parametrize(
    ("name", "keeps_last"),
    [
        ("RefusesLargeLimits", None),
        ("TwentyByDefault", 20),
        ("ZeroMeansAll", None),
        ("TurnsInPart", None),
    ],
)
def test_a_limit_is_passed_only_where_it_means_more(name, keeps_last):
    adapter = resolve(f"tests.support.kit.class_stores:{name}", keeps_last=keeps_last)
    has_limit = name == "TurnsInPart"
    assert any("by default it returns" in note for note in adapter.notes) == has_limit
    assert (adapter.open_async is not None) == has_limit
    report = check(adapter, cases=[*CASES, "order_of_single_appends"], seed=1)
    assert report.verdict == "PASS", [(r.id, r.reason) for r in report.results]


@pytest.mark.parametrize("name", ["TextAlone", "TextAndSender"])
def test_a_store_that_takes_a_message_for_a_text_is_not_accused(name):
    with pytest.raises(Unreachable, match="what it was given came back as"):
        resolve(f"tests.support.kit.class_stores:{name}")


def test_a_store_whose_read_raises_is_called_in_the_form_that_it_takes():
    adapter, opener = taken("DictsAndNoRead")
    assert opener.options["form"] == "dict"
    with pytest.raises(Unreachable, match=r"cannot be opened and read: .* the index is broken"):
        check(adapter, cases=["append_then_read"], seed=1)


def test_what_was_tried_before_is_not_noted_again():
    adapter, _ = taken("ClearDoesNothing")
    assert adapter.tried == {"clear", "fork", "limit", "pop"}


def test_a_store_that_shows_a_window_is_told_how_to_say_so():
    report = check(
        "tests.support.kit.class_stores:NewestTwenty", cases=["order_of_single_appends"], seed=1
    )
    assert report.verdict == "FAIL"
    assert any("--keeps-last 20" in note for note in report.notes), report.notes
    report = check(
        "tests.support.kit.class_stores:NewestTen", cases=["order_of_single_appends"], keeps_last=20
    )
    assert not any("--keeps-last" in note for note in report.notes)
