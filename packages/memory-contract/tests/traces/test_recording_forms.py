"""Right stores that return messages in forms of their own: none of them is accused."""

import enum
import types
import uuid

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from memory_contract import Ok, Undecided, explain_trace, record
from memory_contract.targets.simple_stores import MessagesHandle, TurnsHandle
from memory_contract.targets.vocabulary import run_blocking
from memory_contract.traces.format import TraceOperation, read_trace
from memory_contract.traces.recorder import get_trace_writer


class Messages:
    """Stores messages as they come; how they are shown is up to the test."""

    def __init__(self, show):
        self.show = show
        self.sessions = {}

    def add_messages(self, session_id, messages):
        self.sessions.setdefault(session_id, []).extend(messages)

    def get_history(self, session_id):
        return [self.show(message) for message in self.sessions.get(session_id, [])]


class Turns:
    """Stores turns; how all of them are shown is up to the test."""

    def __init__(self, show):
        self.show = show
        self.turns = []

    def save_context(self, session_id, human_msg, ai_msg):
        self.turns.append((human_msg, ai_msg))

    def load_memory(self, session_id):
        return self.show(self.turns)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def explained(store, path):
    get_trace_writer(store).close()
    return explain_trace(path)


def talk(store):
    store.get_history("s")
    for number in range(3):
        for role in ("user", "assistant"):
            store.add_messages("s", [{"role": role, "content": f"{role} {number}"}])
            store.get_history("s")


FORMS = {
    "pairs in lists": lambda m: [m["role"], m["content"]],
    "rows": lambda m: (m["role"], m["content"], 1700000000),
    "lines": lambda m: f"{m['role']}: {m['content']}",
    "contents": lambda m: m["content"],
    "another name for the content": lambda m: {"role": m["role"], "text": m["content"]},
    "another name for the role": lambda m: {"type": m["role"], "content": m["content"]},
    "other names for both": lambda m: {"sender": m["role"], "text": m["content"]},
    "blocks": lambda m: {**m, "content": [{"type": "text", "text": m["content"]}]},
}


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("show", FORMS.values(), ids=FORMS)
def test_messages_of_an_unknown_form_are_not_compared(path, show, fresh):
    store = record(Messages(show), path, fresh=fresh)
    talk(store)
    found = explained(store, path)
    assert not found.names
    assert found.unjudged


@pytest.mark.parametrize(
    "show",
    [
        lambda m: {**m, "role": m["role"].upper()},
        lambda m: {**m, "role": {"user": "human", "assistant": "ai"}[m["role"]]},
        lambda m: {**m, "id": 17, "created_at": uuid.uuid4().hex},
    ],
)
def test_names_of_roles_and_fields_of_the_store_are_no_difference(path, show):
    store = record(Messages(show), path, fresh=True)
    talk(store)
    del store.sessions["s"][0]
    store.get_history("s")
    assert explained(store, path).counts == {"lost append": 1}


@pytest.mark.parametrize("fresh", [True, False])
def test_ids_that_the_store_gives_to_messages_are_its_own(path, fresh):
    class Given(Messages):
        def add_messages(self, session_id, messages):
            super().add_messages(session_id, [{**m, "id": uuid.uuid4().hex} for m in messages])

    store = record(Given(dict), path, fresh=fresh)
    talk(store)
    del store.sessions["s"][0]
    store.get_history("s")
    assert explained(store, path).counts == {"lost append": 1}


@pytest.mark.parametrize("show", [{}, {"turn": 1}, {"turn": None}])
def test_a_zero_is_a_value_that_can_be_lost(path, show):
    def lose(message):
        return {**{name: message[name] for name in ("role", "content")}, **show}

    store = record(Messages(lose), path, fresh=True)
    store.add_messages("s", [{"role": "user", "content": "a", "turn": 0}])
    store.get_history("s")
    assert explained(store, path).names == {"corrupted entry"}


@pytest.mark.parametrize("empty", [None, "", False, [], {}])
def test_an_empty_field_may_be_left_out_or_become_another(path, empty):
    store = record(Messages(lambda m: {**m, "note": empty, "turn": 0}), path, fresh=True)
    store.add_messages("s", [{"role": "user", "content": "a", "note": None, "turn": False}])
    store.get_history("s")
    assert not explained(store, path).names


def test_a_role_that_has_two_names_is_the_same_in_what_is_appended(path):
    store = record(Messages(dict), path, fresh=True)
    for role in ("human", "ai", "Model", "SYSTEM"):
        store.add_messages("s", [{"role": role, "content": role}])
        store.get_history("s")
    assert not explained(store, path).names


class Role(enum.Enum):
    USER = "user"


class Named(pydantic.BaseModel):
    role: str
    content: str
    name: str | None = None
    id: str | None = None


@pytest.mark.parametrize(
    "messages",
    [
        [HumanMessage("a", id="1"), AIMessage("b", id="2")],
        [
            AIMessage("", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c"}]),
            ToolMessage("found", tool_call_id="c"),
        ],
        [Named(role="user", content="a", name="ana"), Named(role="user", content="b", id="2")],
        [types.SimpleNamespace(role=Role.USER, content="a")],
        [{"role": Role.USER, "content": "a"}],
    ],
)
def test_messages_come_back_as_what_they_were_appended_as(path, messages):
    store = record(Messages(lambda message: message), path, fresh=True)
    for message in messages:
        store.add_messages("s", [message])
        store.get_history("s")
    found = explained(store, path)
    assert isinstance(found.verdict, Ok)
    assert not found.unjudged


def test_messages_under_a_name_are_read(path):
    class Named(Messages):
        def get_history(self, session_id):
            return {"session": session_id, "messages": super().get_history(session_id)}

    store = record(Named(dict), path, fresh=True)
    talk(store)
    store.sessions.clear()
    store.get_history("s")
    assert explained(store, path).names == {"lost append"}


def test_one_text_is_no_list_of_messages(path):
    class Text(Messages):
        def get_history(self, session_id):
            return "\n".join(message["content"] for message in self.sessions.get(session_id, []))

    store = record(Text(dict), path, fresh=True)
    talk(store)
    found = explained(store, path)
    assert not found.names
    assert found.others["get_history"] == 6


class SessionLast(Turns):
    def save_context(self, human_msg, ai_msg, session_id):
        super().save_context(session_id, human_msg, ai_msg)


class SessionByName(Turns):
    def save_context(self, human_msg, ai_msg, *, thread_id="s"):
        super().save_context(thread_id, human_msg, ai_msg)


class SessionBehindTexts(Turns):
    def save_context(self, *texts, session_id):
        super().save_context(session_id, *texts)


@pytest.mark.parametrize("kind", [Turns, SessionLast, SessionByName, SessionBehindTexts])
def test_a_turn_is_not_taken_for_its_session(path, kind):
    store = record(kind(list), path, fresh=True)
    handle = TurnsHandle(store, awaited=False)
    secret = [{"role": role, "content": f"my secret, {role}"} for role in ("user", "assistant")]
    run_blocking(handle.append("s", secret))
    run_blocking(handle.read("s"))
    found = explained(store, path)
    assert not found.names
    assert "my secret" not in path.read_text()
    if kind is not SessionBehindTexts:
        assert isinstance(found.verdict, Ok)
        assert found.verdict.scope.sessions == 1


def add_session_last(self, role, content, session_id):
    self.sessions.setdefault(session_id, []).append({"role": role, "content": content})


def add_content_first(self, content, session_id, role="user"):
    add_session_last(self, role, content, session_id)


def add_by_name(self, *, content, role, session_id):
    add_session_last(self, role, content, session_id)


def add_to_customer(self, role, content, customer):
    add_session_last(self, role, content, customer)


def read_customer(self, customer):
    return Messages.get_history(self, customer)


def test_the_session_is_what_appends_and_reads_have_in_common(path):
    methods = {"add_message": add_to_customer, "add_messages": None, "get_history": read_customer}
    store = record(type("Customers", (Messages,), methods)(dict), path, fresh=True)
    for customer in ("ann", "ben"):
        store.add_message("user", f"my secret, {customer}", customer)
        store.get_history(customer)
    found = explained(store, path)
    assert isinstance(found.verdict, Ok)
    assert found.verdict.scope.sessions == 2
    assert "my secret" not in path.read_text()


@pytest.mark.parametrize("add", [add_session_last, add_content_first, add_by_name])
def test_texts_are_not_taken_for_their_session(path, add):
    kind = type("Texts", (Messages,), {"add_message": add, "add_messages": None})
    store = record(kind(dict), path, fresh=True)
    handle = MessagesHandle(store, form="texts", awaited=False)
    run_blocking(handle.append("s", [{"role": "user", "content": "my secret"}]))
    run_blocking(handle.read("s"))
    assert isinstance(explained(store, path).verdict, Ok)
    assert "my secret" not in path.read_text()


def test_an_iterator_of_messages_may_stand_before_the_session(path):
    class SessionLast(Messages):
        def add_messages(self, messages, session_id):
            super().add_messages(session_id, messages)

    store = record(SessionLast(dict), path, fresh=True)
    store.add_messages(iter([{"role": "user", "content": "hello"}]), "s")
    assert store.get_history("s") == [{"role": "user", "content": "hello"}]
    assert isinstance(explained(store, path).verdict, Ok)


def test_a_rollback_may_name_the_snapshot_first(path):
    class Snapshots(Messages):
        def save_snapshot(self, session_id):
            self.saved = list(self.sessions.get(session_id, []))
            return "one"

        def rollback_to_snapshot(self, snapshot_id, session_id):
            self.sessions[session_id] = list(self.saved)

    store = record(Snapshots(dict), path, fresh=True)
    store.save_snapshot("s")
    talk(store)
    store.rollback_to_snapshot("one", "s")
    store.get_history("s")
    assert isinstance(explained(store, path).verdict, Ok)


TURNS = {
    "one text": lambda turns: "\n".join(f"Human: {human}\nAI: {ai}" for human, ai in turns),
    "one text by name": lambda turns: {"history": "".join(human + ai for human, ai in turns)},
    "texts": lambda turns: [text for turn in turns for text in turn],
    "other names": lambda turns: [{"question": human, "answer": ai} for human, ai in turns],
}


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("show", TURNS.values(), ids=TURNS)
def test_turns_of_an_unknown_form_are_not_compared(path, show, fresh):
    store = record(Turns(show), path, fresh=fresh)
    for number in range(4):
        store.save_context("s", f"q {number}", f"a {number}")
        store.load_memory("s")
    found = explained(store, path)
    assert isinstance(found.verdict, Undecided)
    assert not found.metadata.dropped


def test_turns_that_are_no_texts_are_not_compared(path):
    store = record(Turns(lambda turns: [(q["input"], a["output"]) for q, a in turns]), path)
    store.save_context("s", {"input": "q"}, {"output": "a"})
    store.load_memory("s")
    found = explained(store, path)
    assert not found.names
    assert [each.verb for each in found.unknown] == ["save_context"]


POPS = {
    "nothing": lambda messages: messages.pop() and None,
    "whether it did": lambda messages: bool(messages.pop()),
    "a text": lambda messages: messages.pop()["content"],
}


@pytest.mark.parametrize("pop", POPS.values(), ids=POPS)
def test_a_pop_need_not_return_what_it_took(path, pop):
    class Popping(Messages):
        def pop(self, session_id):
            return pop(self.sessions[session_id])

    store = record(Popping(dict), path, fresh=True)
    talk(store)
    store.pop("s")
    store.get_history("s")
    store.pop("s")
    store.get_history("s")
    assert not explained(store, path).names


def test_a_pop_of_a_store_of_turns_may_take_two_messages(path):
    class Popping(Turns):
        def pop(self, session_id):
            return self.turns.pop()

    store = record(Popping(list), path, fresh=True)
    for number in range(3):
        store.save_context("s", f"q {number}", f"a {number}")
    store.load_memory("s")
    store.pop("s")
    store.load_memory("s")
    assert not explained(store, path).names


def test_a_read_with_a_number_of_its_own_may_return_a_part(path):
    class Few(Messages):
        def get_history(self, session_id, max_turns=3):
            return super().get_history(session_id)[-max_turns:]

    store = record(Few(dict), path, fresh=True)
    talk(store)
    assert not explained(store, path).names


def test_what_is_lost_before_it_was_ever_seen_is_lost(path):
    store = record(Messages(dict), path)
    store.sessions["s"] = [{"role": "user", "content": "older"}]
    store.get_history("s")
    store.add_messages("s", [{"role": "user", "content": "new"}])
    del store.sessions["s"][-1]
    store.get_history("s")
    assert explained(store, path).names == {"lost append"}


def test_a_read_that_could_not_be_looked_at_is_replayed_all_the_same(path):
    store = record(Messages(lambda m: m["content"]), path, fresh=True)
    talk(store)
    get_trace_writer(store).close()
    reads = [line for line in read_trace(path) if isinstance(line, TraceOperation)]
    assert {op.outcome for op in reads if op.op == "read" and op.value is None} == {"info"}
