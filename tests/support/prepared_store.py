"""The store that commands run on: its ids and times are the same in every run."""

import indelible
from indelible import Summary

NINE_O_CLOCK = 978339600  # 2001-01-01 09:00:00 UTC
SNAPSHOT = "before-refund"


def prepare(path):
    """Two sessions: ada, with a past, and bob, with an open tool call."""
    world = World()
    with indelible.open(path, clock=world.clock, ids=world.ids) as made:
        _ada(made, world)
        _bob(made)


class World:
    """A clock that moves when it is told to, and ids that count."""

    def __init__(self):
        self.now = NINE_O_CLOCK
        self.named = []
        self.made = 0

    def clock(self):
        return float(self.now)

    def ids(self):
        self.made += 1
        return self.named.pop() if self.named else f"made-{self.made}"

    def later(self, seconds=60):
        self.now += seconds


def _ada(made, world):
    made.add_message("ada", "system", "You help with orders.")
    made.save_context("ada", "Where is\norder 7?", "Let me look.")
    world.later()
    made.add_tool_call("ada", "call-1", "find_order", {"id": 7})
    made.add_tool_result("ada", "call-1", {"state": "shipped"})
    world.named = [SNAPSHOT]
    made.save_snapshot("ada", label="before the refund")
    world.later(24 * 3600)
    made.add_message("ada", "user", "Then I want a refund.")
    made.add_tool_call("ada", "call-2", "refund", {"id": 7})
    covers = ((1, 5),)
    made.add_entries("ada", [Summary(text="Order 7 was shipped.", covers=covers)])
    world.later()
    made.rollback_to_snapshot("ada", SNAPSHOT)
    made.add_message("ada", "user", "Thanks! " + "That is all I wanted to know. " * 4)
    world.later()
    made.trim("ada", keep_last=1)


def _bob(made):
    made.add_messages("bob", [{"role": "user", "content": "Mind \x1b[2J this.", "pinned": True}])
    call = {"id": "call-9", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
    made.add_messages("bob", [{"role": "assistant", "content": None, "tool_calls": [call]}])
