"""The README does what it says."""

import re
from pathlib import Path

pytest_plugins = ["pytester"]

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMAND = re.search(r"\$ pytest (.*)", README)[1].split()


def test_the_first_example_does_what_it_says(project):
    path = project.path / "test_upgrade.py"
    path.write_text(PYTHON[0], "utf-8")
    ran = project.run()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines([f"E*pytest {' '.join(COMMAND)}"])
    ran = project.run(*COMMAND)
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["new *test_upgrade/before.db", "new *test_upgrade/after.db"])
    project.run().assert_outcomes(passed=1)
    forgets = 'DEFAULT 0")\n        db.execute("DELETE FROM note WHERE id = 2")'
    path.write_text(PYTHON[0].replace('DEFAULT 0")', forgets), "utf-8")
    shown = [line for line in README.splitlines() if line.startswith("E ")]
    project.run().stdout.fnmatch_lines(shown)


def test_the_rules_are_taken(project):
    tables = """
        def test_rules(snapshot_db):
            db = snapshot_db.connect()
            db.execute("CREATE TABLE note (created_at)")
            db.execute("CREATE TABLE entry (payload)")
            path = snapshot_db.path
            {}
    """
    call = " ".join(line.strip() for line in PYTHON[1].splitlines() if "# " not in line)
    project.tests(tables.format(call)).run("--snapshot-update").assert_outcomes(passed=1)
