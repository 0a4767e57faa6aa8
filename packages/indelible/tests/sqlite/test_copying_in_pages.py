"""A copy from file to file holds a part of a session in memory, however long the session is."""

import tracemalloc

import indelible

ENTRIES = 8_000
ENTRY_BYTES = 2_000
# A page and a batch, in several forms. A session that was held would be twice that, once.
HELD_BYTES_MAX = ENTRIES * ENTRY_BYTES // 2


def test_a_long_session_is_copied_without_being_held_in_memory(tmp_path):
    with (
        indelible.open(tmp_path / "source.db") as source,
        indelible.open(tmp_path / "target.db") as target,
    ):
        message = {"role": "user", "content": "x" * ENTRY_BYTES}
        for _ in range(ENTRIES // 400):
            source.add_messages("long", [message] * 400)
        tracemalloc.start()
        try:
            report = indelible.copy_sessions(source, target)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (report.ok, report.entries) == (True, ENTRIES)
    assert peak_bytes < HELD_BYTES_MAX, peak_bytes
