"""What a store may lose, as it says itself."""

from stores import say

from indelible import Gravity


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
