"""Memories on the command line."""

import json

FACTS = "users/ana/facts"


def test_memories_are_stored_listed_and_taken_back(command, golden):
    command("remember", FACTS, "Ana drinks coffee", "--id", "drink")
    command("remember", FACTS, "Ana drinks tea", "--id", "drink", "--metadata", '{"topic": "food"}')
    command("remember", FACTS, "Ana lives in Rome", "--id", "city", "--key", "k")
    command("remember", FACTS, "Ana lives in Rome", "--id", "city", "--key", "k")
    command("memories", FACTS)
    command("memories", FACTS, "--where", "metadata.topic=food")
    command("memories", FACTS, "drink")
    command("memories", FACTS, "--limit", "1")
    command("retract", FACTS, "drink")
    command("retract", FACTS, "drink")
    command("memories", FACTS, "drink")
    command("memories", FACTS, "nothing")
    golden()


def test_wrong_arguments_write_nothing(command, golden):
    command("memories", "nowhere", code=1)
    command("retract", "nowhere", "drink", code=1)
    command("remember", FACTS, "tea", "--metadata", "{", code=2)
    command("remember", FACTS, "tea", "--metadata", "[]", code=2)
    command("remember", FACTS, "tea", "--id", "", code=2)
    command("remember", FACTS, "tea", "--ttl", "0", code=2)
    golden()


def test_a_new_memory_has_its_key_as_its_id(command):
    receipt = json.loads(command("remember", FACTS, "tea", "--json").out)
    listed = json.loads(command("memories", FACTS, "--json").out)
    assert [each["id"] for each in listed["memories"]] == [receipt["key"]]
