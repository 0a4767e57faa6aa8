"""The page: made from results alone, and that in `docs` from the results beside it."""

from pathlib import Path

import pytest

from scoreboard import results
from scoreboard.__main__ import main
from scoreboard.markdown_page import to_markdown
from scoreboard.stores import STORES
from tests.scoreboard.scoreboard_runs import (
    FILE,
    OURS,
    SQL,
    found_by_search,
    passed,
    run_of,
    three_stores,
)

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_says_what_was_seen_and_how_to_see_it_again():
    page = to_markdown([three_stores()])
    assert "**FAIL**: lost append" in page
    assert "| RAISES |" in page
    assert "of 60 power cuts, 7 took acknowledged changes" in page
    assert (
        "$ .venv-frameworks/langchain/bin/memory-contract check"
        " langchain:scoreboard.factories.langchain:file"
        " --case concurrency/append_storm --seed 41 --rounds 10"
    ) in page
    assert "<e1> was acknowledged and is missing." in page


def test_stores_that_search_have_a_table_of_their_own():
    assert "## Search" not in to_markdown([three_stores()])
    run = run_of(
        {
            OURS: [found_by_search("retracted_is_not_found", "PASS")],
            FILE: [passed("sequential")],
            SQL: [
                found_by_search("what_was_put_is_found", "PASS"),
                found_by_search("retracted_is_not_found", "FAIL"),
            ],
        }
    )
    page = to_markdown([run])
    table = page[page.index("## Search") : page.index("## What was seen")]
    assert "indelible" in table
    assert "FileChatMessageHistory" not in table
    assert "| `what_was_put_is_found` | NOT CLAIMED | PASS |" in table
    assert "| `retracted_is_not_found` | PASS | **FAIL** |" in table


def test_a_store_of_memories_is_in_the_table_of_search_alone():
    page = to_markdown(
        [run_of({"mem0/qdrant": [found_by_search("what_was_put_is_found", "PASS")]})]
    )
    assert "mem0" not in page[: page.index("## Search")]
    assert "| | mem0 `Memory, infer=False (Qdrant)`, files |" in page


def test_the_page_says_whether_two_runs_agree():
    assert "of 3 of 3 stores; they agree on each of 18 verdicts" in to_markdown(
        [three_stores(), three_stores()]
    )
    again = three_stores()
    del again.outcomes[FILE]
    assert "of 2 of 3 stores; they agree on each of 12 verdicts" in to_markdown(
        [three_stores(), again]
    )


def test_the_page_in_the_documents_is_that_of_the_results_beside_it():
    runs = results.read(DOCS / "scoreboard.json.gz")
    assert (DOCS / "scoreboard.md").read_text("utf-8") == to_markdown(runs)


def test_enough_stores_of_enough_frameworks_were_tried():
    (newest, *_) = results.read(DOCS / "scoreboard.json.gz")
    tried = [s for s in STORES if s.id in newest.outcomes and newest.outcomes[s.id].seen]
    theirs = [store for store in tried if store.environment is not None]
    assert len(theirs) >= 15
    assert len({store.framework for store in theirs}) >= 6
    assert len(tried) - len(theirs) == 4


def test_the_page_is_written_without_running_anything(tmp_path):
    results.write(tmp_path / "scoreboard.json.gz", [three_stores(), three_stores()])
    assert main(["--pages", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "scoreboard.md").read_text("utf-8").startswith("# Scoreboard")


def test_a_store_that_is_not_there_is_refused_before_anything_runs(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["--only", "nobody", "--folder", str(tmp_path)])
    assert end.value.code == 2
    assert "Nothing was run: no store is called nobody." in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
