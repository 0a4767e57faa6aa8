"""Sessions beside the one that is attacked, which nothing may read or change."""

SECRET = "nobody else may see this"


class Neighbours:
    """A session before, one behind, and one of the same id in another namespace."""

    def __init__(self, stores, store):
        self._others = [(store, "before"), (store, "zebra")]
        if stores.engine != "memory":
            self._others.append((stores.open(namespace="theirs"), "mine"))
        for other, session in self._others:
            for number in range(4):
                other.add_message(session, "user", f"{SECRET} {session} {number}")
            other.save_snapshot(session)
            other.hide(session, [1])
        self._states = self._read()

    def _read(self):
        return [
            (
                list(other.get_entries(session)),
                other.timeline(session).entries,
                [snapshot.id for snapshot in other.list_snapshots(session)],
            )
            for other, session in self._others
        ]

    def check(self):
        """Raise if anything of them changed."""
        assert self._read() == self._states


def leaked(entries):
    """Whether entries that were read hold something of a neighbour."""
    return SECRET in repr(entries)
