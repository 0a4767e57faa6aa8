"""What a store may lose, as it says itself."""

from dataclasses import replace

import indelible
from indelible import Gravity
from indelible.core.operations import ListSessions
from indelible.core.plans import risks
from tests.support.stores import Clock, say


def wasteful(store):
    return [risk for risk in store.risks(sessions=True) if "session" in risk.subject]


def test_every_risk_says_what_when_and_what_to_do(store):
    for risk in store.risks():
        assert risk.severity in set(Gravity)
        assert all((risk.subject, risk.risk, risk.remedy))


def test_risks_of_the_engine_do_not_look_at_sessions(store, clock):
    say(store, "s", *"abc")
    store.clear("s")
    clock.advance(8 * 24 * 3600)
    assert not any("session" in risk.subject for risk in store.risks())


def test_a_session_that_is_mostly_out_of_reach_is_named(store, clock):
    say(store, "s", *"abcde")
    say(store, "t", *"abcde")
    store.trim("s", keep_last=2)
    assert wasteful(store) == [], "what can be undone is in reach"
    clock.advance(8 * 24 * 3600)
    (risk,) = wasteful(store)
    assert risk.severity is Gravity.WARNING
    assert risk.subject == "session 's'"
    assert "3 of its 5 entries" in risk.risk
    store.vacuum()
    assert wasteful(store) == []


def test_half_of_a_session_is_not_most_of_it(store, clock):
    say(store, "s", *"abcd")
    store.trim("s", keep_last=2)
    clock.advance(8 * 24 * 3600)
    assert wasteful(store) == []


def test_of_many_such_sessions_some_are_named_and_the_others_counted(store, clock):
    for number in range(23):
        say(store, f"s{number}", "a", "b")
        store.clear(f"s{number}")
    clock.advance(8 * 24 * 3600)
    found = wasteful(store)
    assert len(found) == 21
    assert found[-1].subject == "3 more sessions"
    seen = []
    store.risks(sessions=True, progress=lambda name, wasted: seen.append(name))
    assert len(seen) == 23


def test_only_so_many_sessions_are_looked_at_and_it_says_so(store, clock, monkeypatch):
    monkeypatch.setattr(risks, "RISK_SESSIONS_MAX", 5)
    for number in range(5):
        say(store, f"s{number}", "a")
    assert wasteful(store) == []
    say(store, "s5", "a")
    seen = []
    found = store.risks(sessions=True, progress=lambda name, wasted: seen.append(name))
    assert len(seen) == 5
    (note,) = [risk for risk in found if "session" in risk.subject]
    assert note.severity is Gravity.NOTE
    assert "beyond the first 5" in note.subject


def test_a_session_that_shows_everything_costs_one_look(monkeypatch):
    with indelible.open("memory:") as store:
        for number in range(50):
            say(store, f"s{number}", "a", "b")
        steps, perform = [], store._backend.perform

        def count(step):
            steps.append(step)
            return perform(step)

        monkeypatch.setattr(store._backend, "perform", count)
        store.risks(sessions=True)
    assert len(steps) < 60


def test_a_session_that_is_listed_twice_is_named_once(monkeypatch):
    clock = Clock()
    with indelible.open("memory:", clock=clock) as store:
        say(store, "s", *"abc")
        store.trim("s", keep_last=1)
        clock.advance(8 * 24 * 3600)
        perform = store._backend.perform

        def repeat(op):
            answer = perform(op)
            if isinstance(op, ListSessions):
                return replace(answer, sessions=answer.sessions * 2)
            return answer

        # As Redis may if others are added meanwhile.
        monkeypatch.setattr(store._backend, "perform", repeat)
        assert [risk.subject for risk in wasteful(store)] == ["session 's'"]
