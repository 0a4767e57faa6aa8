"""The gate of strange contents, sizes and names: right stores pass, each broken one fails."""

import fnmatch
import json
import zlib

import pytest

from memory_contract import Refused, check
from tests.support.kit import gate_stores as right
from tests.support.kit.gate_stores import Filed, Sound, of_files, of_memory

# Stores of indelible are in `tests/contract`.
RIGHT = {
    "lists": of_memory(Sound),
    "lists_of_few_words": of_memory(Sound, capabilities=()),
    "file": of_files(Filed, capabilities=("clear", "list", "fields")),
    "list_under_lock": right.ListUnderLock,
    "async_list_under_lock": right.AsyncListUnderLock,
    "turns": right.Turns,
}


@pytest.mark.parametrize("store", RIGHT)
def test_a_right_store_passes(store):
    report = check(RIGHT[store], gates=["edges"], seed=1, budget_s=300)
    assert report.verdict == "PASS", [r for r in report.results if r.verdict == "FAIL"]


def test_a_damaged_file_of_indelible_is_found_and_noticed(tmp_path):
    report = check(f"sqlite:///{tmp_path}/x.db", cases=["damaged_entry_is_loud"], seed=1)
    assert [result.verdict for result in report.results] == ["PASS", "PASS"]


class Rewrites(Sound):
    """Stores each message as something else."""

    def rewritten(self, message):
        content = message["content"]
        return {**message, "content": self.text(content) if isinstance(content, str) else content}

    def text(self, content):
        return content

    def add(self, session, messages):
        super().add(session, [self.rewritten(message) for message in messages])


class CutsAtNul(Rewrites):
    def text(self, content):
        return content.partition("\0")[0]


class ReplacesSurrogates(Rewrites):
    def text(self, content):
        return content.encode("utf-8", "replace").decode()


class OneKindOfLineEnd(Rewrites):
    def text(self, content):
        return content.replace("\r\n", "\n")


class RefusesTooLate(Sound):
    def add(self, session, messages):
        super().add(session, messages)
        str(messages[0]["content"]).encode()


class Strips(Rewrites):
    def text(self, content):
        return content.strip(" \n") or content


class ThroughJson(Rewrites):
    """Stores what JSON makes of a message, with one more slip."""

    def rewritten(self, message):
        return self.back(json.loads(json.dumps(message, default=repr)))

    def back(self, value):
        if isinstance(value, dict):
            return {key: self.back(item) for key, item in value.items()}
        return [self.back(item) for item in value] if isinstance(value, list) else value


class BigNumbersAsFloats(ThroughJson):
    def back(self, value):
        return float(value) if type(value) is int and value > 2**60 else super().back(value)


class TrueIsOne(ThroughJson):
    def back(self, value):
        return int(value) if isinstance(value, bool) else super().back(value)


class DropsEmpties(ThroughJson):
    def back(self, value):
        if isinstance(value, dict):
            return {key: self.back(item) for key, item in value.items() if item != {}}
        return super().back(value)


class DropsToolCalls(Rewrites):
    def rewritten(self, message):
        return {name: value for name, value in message.items() if name != "tool_calls"}


class KnowsItsFields(Rewrites):
    known = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "metadata"})

    def rewritten(self, message):
        return {name: value for name, value in message.items() if name in self.known}


class BlocksAsText(Rewrites):
    def rewritten(self, message):
        blocks = isinstance(message["content"], list)
        return {**message, "content": str(message["content"])} if blocks else message


class DescribesFields(Rewrites):
    def rewritten(self, message):
        metadata = json.loads(json.dumps(message.get("metadata"), default=str))
        return {**message, "metadata": metadata} if metadata else message


class CutsAt64KiB(Rewrites):
    def text(self, content):
        return content[:65_535]


class DropsWhatIsLarge(Sound):
    def add(self, session, messages):
        super().add(session, [m for m in messages if len(str(m["content"])) < 2**20])


class Renames(Sound):
    """Files a session under another name."""

    def renamed(self, session):
        return session

    def add(self, session, messages):
        super().add(self.renamed(session), messages)

    def read(self, session, *, limit=None):
        return super().read(self.renamed(session), limit=limit)

    def clear(self, session):
        super().clear(self.renamed(session))


class CaseBlind(Renames):
    def renamed(self, session):
        return session.lower()


class NamesAsPaths(Renames):
    def renamed(self, session):
        return session.replace("/", "_").replace("..", "_")


class NamesAsNumbers(Renames):
    def renamed(self, session):
        return int(session) if session.isdigit() else session


class ReadsByPattern(Sound):
    def read(self, session, *, limit=None):
        return [
            m
            for name in list(self.shown)
            if fnmatch.fnmatchcase(name, session)
            for m in Sound.read(self, name)
        ]


class ShortNames(Renames):
    def renamed(self, session):
        return session[:255]


class ClearsByLike(Sound):
    def clear(self, session):
        pattern = session.replace("_", "?").replace("%", "*")
        for name in list(self.shown):
            if name == session or ("[" not in pattern and fnmatch.fnmatchcase(name, pattern)):
                super().clear(name)


class ListsAHundred(Sound):
    def sessions(self):
        return super().sessions()[:99]


class SkipsWhatItCannotRead(Filed):
    """A line for each message; what cannot be decoded is left out."""

    def append(self, session, messages):
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps([session, message]) + "\n" for message in messages)

    def read(self, session):
        found = []
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            try:
                name, message = json.loads(line)
            except ValueError:
                continue
            found += [message] if name == session else []
        return found


class StopsAtWhatItCannotRead(SkipsWhatItCannotRead):
    def read(self, session):
        found = []
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            try:
                name, message = json.loads(line)
            except ValueError:
                break
            found += [message] if name == session else []
        return found


class Compressed(Filed):
    def load(self):
        return json.loads(zlib.decompress(self.path.read_bytes())) if self.path.exists() else {}

    def save(self, sessions):
        self.path.write_bytes(zlib.compress(json.dumps(sessions).encode()))


class ReplacesWhatItCannotRead(Filed):
    def load(self):
        if not self.path.exists():
            return {}
        return json.loads(self.path.read_bytes().decode("utf-8", "replace"))


ONLY_APPENDS = {"capabilities": ()}
# Broken in other ways than the goldfish of the same cases.
BROKEN = [
    ("unicode_survives", of_memory(CutsAtNul)),
    ("unicode_survives", of_memory(ReplacesSurrogates)),
    ("unicode_survives", of_memory(OneKindOfLineEnd)),
    ("unicode_survives", of_memory(RefusesTooLate)),
    ("blank_contents_survive", of_memory(Strips)),
    ("json_values_survive", of_memory(BigNumbersAsFloats)),
    ("json_values_survive", of_memory(TrueIsOne)),
    ("json_values_survive", of_memory(DropsEmpties)),
    ("message_fields_survive", of_memory(DropsToolCalls)),
    ("message_fields_survive", of_memory(KnowsItsFields)),
    ("message_fields_survive", of_memory(BlocksAsText)),
    ("unserialisable_is_refused", of_memory(DescribesFields)),
    ("huge_message_is_whole_or_refused", of_memory(CutsAt64KiB)),
    ("huge_message_is_whole_or_refused", of_memory(DropsWhatIsLarge)),
    ("hostile_session_ids", of_memory(CaseBlind)),
    ("hostile_session_ids", of_memory(NamesAsPaths)),
    ("hostile_session_ids", of_memory(NamesAsNumbers)),
    ("hostile_session_ids", of_memory(ReadsByPattern)),
    ("similar_session_ids", of_memory(ShortNames)),
    ("similar_session_ids", of_memory(ClearsByLike)),
    ("many_sessions", of_memory(ListsAHundred)),
    ("damaged_entry_is_loud", of_files(SkipsWhatItCannotRead, **ONLY_APPENDS)),
    ("damaged_entry_is_loud", of_files(StopsAtWhatItCannotRead, **ONLY_APPENDS)),
]


@pytest.mark.parametrize(("case", "store"), BROKEN, ids=[f"{s.name}-{c}" for c, s in BROKEN])
def test_a_broken_store_fails_its_case(case, store):
    results = check(store, cases=[case], seed=1).results
    assert {r.verdict for r in results} == {"FAIL"}, results
    assert all(r.failures for r in results)


@pytest.mark.parametrize("store", [store for _, store in BROKEN], ids=lambda store: store.name)
def test_a_broken_store_never_confuses_the_kit(store):
    """Most slips are small: of this gate, few cases see each, and none says that it is unsure."""
    results = check(store, gates=["edges"], seed=2, budget_s=300).results
    assert {r.verdict for r in results} <= {"FAIL", "PASS", "NOT CLAIMED"}, results
    assert len({r.case for r in results if r.verdict == "FAIL"}) <= 4, results


class Picky(Sound):
    """Refuses whatever is strange, before anything is written."""

    def append(self, session, messages, **options):
        if not session.isprintable() or not 0 < len(session) < 100:
            raise Refused("a strange name")
        for message in messages:
            content = message["content"]
            if not isinstance(content, str) or not content.strip() or not content.isprintable():
                raise Refused("a strange message")
            if len(content) > 100_000:
                raise Refused("a large message")
        super().append(session, messages, **options)


def test_whatever_is_strange_may_be_refused():
    report = check(of_memory(Picky, without=["fields"]), gates=["edges"], seed=1)
    assert report.verdict == "PASS", [r for r in report.results if r.verdict == "FAIL"]
    told = "\n".join(report.notes)
    assert "refused in a message: a NUL, " in told
    assert "a message of 1048576 bytes is refused" in told
    assert "session ids are refused, such as" in told


class Lists(ThroughJson):
    """What JSON makes of a tuple is told, and is no failure."""

    def rewritten(self, message):
        return json.loads(json.dumps(message))


def test_a_tuple_that_becomes_a_list_is_told():
    report = check(of_memory(Lists), cases=["json_values_survive"], seed=1)
    assert report.verdict == "PASS"
    assert "a tuple in a field is taken, and comes back as [1, 2]" in report.notes


def test_a_store_whose_files_cannot_be_searched_is_not_accused():
    (result,) = check(of_files(Compressed), cases=["damaged_entry_is_loud"], seed=1).results
    assert result.verdict == "NOT CLAIMED"
    assert "no file of the workspace holds" in result.reason


@pytest.mark.parametrize("store", [Filed, ReplacesWhatItCannotRead])
def test_whoever_raises_or_shows_the_damage_is_not_accused(store):
    (result,) = check(of_files(store), cases=["damaged_entry_is_loud"], seed=1).results
    assert result.verdict == "PASS"


def test_the_proof_names_the_character():
    report = check(of_memory(CutsAtNul), cases=["unicode_survives"], seed=1)
    proof = report.results[0].failures[-1].proof
    assert proof == "a NUL: 'before\\x00after' came back as 'before'"


def test_a_named_limit_is_where_the_large_messages_end():
    report = check(
        of_memory(CutsAt64KiB, message_bytes_max=65_000),
        cases=["huge_message_is_whole_or_refused"],
        seed=1,
    )
    assert report.verdict == "PASS"
