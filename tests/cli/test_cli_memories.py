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


def test_search_finds_what_shows(command):
    command("remember", FACTS, "Ana drinks tea", "--id", "drink")
    said = command("search", "drinking tea", "--under", "users/ana").out
    assert said.startswith(f"{FACTS} 0, ")
    assert "memory drink: Ana [drinks] [tea]" in said
    hits = json.loads(command("search", "tea", "--session", FACTS, "--json").out)["hits"]
    assert [(hit["session_id"], hit["position"]) for hit in hits] == [(FACTS, 0)]
    assert command("search", "zebra").out == "Nothing was found.\n"
    command("search", "", code=2)
    assert "no session 'nowhere'" in command("search", "tea", "--session", "nowhere", code=1).err
    command("search", "tea", "--where", "colour=red", code=2)


def test_wrong_arguments_write_nothing(command, golden):
    command("memories", "nowhere", code=1)
    command("retract", "nowhere", "drink", code=1)
    command("remember", FACTS, "tea", "--metadata", "{", code=2)
    command("remember", FACTS, "tea", "--metadata", "[]", code=2)
    command("remember", FACTS, "tea", "--id", "", code=2)
    command("remember", FACTS, " ", code=2)
    golden()


def test_a_new_memory_has_its_key_as_its_id(command):
    receipt = json.loads(command("remember", FACTS, "tea", "--json").out)
    listed = json.loads(command("memories", FACTS, "--json").out)
    assert [each["id"] for each in listed["memories"]] == [receipt["key"]]


def test_reindex_says_how_many_entries_it_added(command):
    command("remember", FACTS, "Ana drinks tea", "--id", "drink")
    # Entries wait to be indexed until there are some.
    assert command("reindex").out == "Indexed 9 entries.\n"
    assert command("reindex").out == "Indexed 0 entries.\n"
    assert command("reindex", "--rebuild").out == "Indexed 9 entries.\n"
    assert json.loads(command("reindex", "--json").out) == {"entries": 0, "damaged": 0}
