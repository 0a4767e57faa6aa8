"""Histories of a right store, and changes that make them wrong."""

from dataclasses import replace


def reads_of(history):
    return [
        o
        for o in history
        if o.op == "read" and o.outcome == "ok" and o.snapshot is None and o.value
    ]


def acknowledged(history):
    return [o for o in history if o.op == "append" and o.outcome == "ok"]


def edited(history, changes):
    return [changes.get(id(o), o) for o in history]


def lose(history, rng):
    """An acknowledged batch is missing from the final read, and from all that begin after it."""
    ends = {o.session: o for o in history if o.worker == "final"}
    appends = [o for o in acknowledged(history) if set(o.ids) <= set(ends[o.session].value)]
    if not appends:
        return None
    gone = rng.choice(appends)
    changes = {
        id(o): replace(o, value=tuple(i for i in o.value if i not in gone.ids))
        for o in reads_of(history)
        if o.session == gone.session and o.invoke_ns > gone.complete_ns
    }
    return edited(history, changes)


def duplicate(history, rng):
    """One read shows an entry twice."""
    read = rng.choice(reads_of(history) or [None])
    if read is None:
        return None
    at = rng.randrange(len(read.value))
    value = (*read.value[: at + 1], read.value[at], *read.value[at + 1 :])
    return edited(history, {id(read): replace(read, value=value)})


def leak(history, rng):
    """One read shows an entry of another session."""
    pairs = [
        (r, a) for r in reads_of(history) for a in acknowledged(history) if a.session != r.session
    ]
    if not pairs or any(o.op == "fork" for o in history):
        return None
    read, append = rng.choice(pairs)
    return edited(history, {id(read): replace(read, value=(*read.value, append.ids[0]))})


def tear(history, rng):
    """One read shows a batch without one of its entries."""
    pairs = [
        (r, a)
        for r in reads_of(history)
        for a in acknowledged(history)
        if len(a.ids) > 1 and r.limit is None and set(a.ids) <= set(r.value)
    ]
    if not pairs:
        return None
    read, append = rng.choice(pairs)
    gone = rng.choice(append.ids)
    value = tuple(i for i in read.value if i != gone)
    return edited(history, {id(read): replace(read, value=value)})


def make_stale(history, rng):
    """One read lacks the newest entries, and one of them was acknowledged before it began."""
    acks = {i: o.complete_ns for o in acknowledged(history) for i in o.ids}
    found = []
    for read in reads_of(history):
        if read.worker == "final" or read.limit is not None:
            continue
        found += [
            (read, at)
            for at in range(len(read.value))
            if any(acks.get(i, read.invoke_ns) < read.invoke_ns for i in read.value[at:])
        ]
    if not found:
        return None
    read, at = rng.choice(found)
    return edited(history, {id(read): replace(read, value=read.value[:at])})


def swap(history, rng):
    """One read shows two acknowledged neighbours the wrong way round."""
    acked = {i for o in acknowledged(history) for i in o.ids}
    found = [
        (read, at)
        for read in reads_of(history)
        for at in range(len(read.value) - 1)
        if {read.value[at], read.value[at + 1]} <= acked
    ]
    if not found:
        return None
    read, at = rng.choice(found)
    ids = list(read.value)
    ids[at], ids[at + 1] = ids[at + 1], ids[at]
    return edited(history, {id(read): replace(read, value=tuple(ids))})


DEFECTS = {
    "lost": lose,
    "duplicate": duplicate,
    "leak": leak,
    "torn": tear,
    "stale": make_stale,
    "swap": swap,
}
