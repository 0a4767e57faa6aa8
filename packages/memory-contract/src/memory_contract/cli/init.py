"""`memory-contract init`: the files with which a project checks its store."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final

from memory_contract.cli.check import translate_errors
from memory_contract.cli.parser import Commands, add_command
from memory_contract.errors import UnavailableError, UsageError
from memory_contract.redaction import has_password
from memory_contract.targets import find_factory_source
from memory_contract.traces.regression_test import STORE_URL, build_store_source

FACTORY_FILE: Final = "contract_store.py"
TEST_FILE: Final = "test_memory_contract.py"
CI_FILE: Final = ".github/workflows/memory-contract.yml"

_FACTORY: Final = '''\
"""The store that the memory contract is checked on."""

{source}'''
_EXAMPLE: Final = """\
def make_store(workspace):
    # Return a store that keeps all of its data in the folder `workspace` (a pathlib.Path), such as
    # return MyStore(workspace / "store.db")
    raise NotImplementedError("open your store here")
"""
_TEST: Final = '''\
"""The memory contract: each case is a test of this class."""

{imports}


class TestStore(MemoryContract):
    adapter = {store}
    # What the kit cannot find out about the store of a factory can be claimed, and the store is
    # then held to it: memory_contract.Adapter(open="mystore:make_store", durability="power") if
    # nothing is lost in a power cut, keeps_last=20 if older entries go.
'''
_CI: Final = """\
name: memory contract
on: [push, pull_request]
jobs:
  memory-contract:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      # {about}
      # memory-contract is not on PyPI yet: {kit} stands for your copy of it.
      - run: pip install {packages}{kit}
      - run: |
          memory-contract check {target} --full --report memory-contract-report
{environment}      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: memory-contract-report
          path: memory-contract-report
"""
# A target with a password is a secret of the CI's.
_ENVIRONMENT: Final = f"""\
        env:
          {STORE_URL}: ${{{{ secrets.{STORE_URL} }}}}
"""
_KIT: Final = "./memory-contract"


def add_commands(commands: Commands) -> None:
    """Add `init`."""
    parser = add_command(commands, "init", init, "init mystore:Store", "init")
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="The store, named as for `memory-contract check`. Without it, the factory is a form to"
        " fill in.",
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="The folder of the project. Default: the current one.",
    )


def init(arguments: Namespace) -> int:
    """Write a factory, a pytest file and a CI step that check a store; overwrite nothing.

    Exits with 0, with 2 if all of the files are there already, or with 4 if one cannot be written.
    """
    target, source = _find_factory(arguments.target)
    secret = has_password(target)
    shown = f'"${STORE_URL}"' if secret else shlex.quote(target)
    imports = "from memory_contract import MemoryContract"
    about, packages = _find_packages(arguments.into)
    files = {FACTORY_FILE: _FACTORY.format(source=source)} if source else {}
    files |= {
        TEST_FILE: _TEST.format(
            imports=f"import os\n\n{imports}" if secret else imports,
            store=build_store_source(target),
        ),
        CI_FILE: _CI.format(
            target=shown,
            about=about,
            packages=packages,
            kit=_KIT,
            environment=_ENVIRONMENT if secret else "",
        ),
    }
    written = [name for name, text in files.items() if _write(arguments.into / name, text)]
    if not written:
        raise UsageError(f"{', '.join(files)} are there already: nothing was written")
    if FACTORY_FILE in written and ("..." in source or "NotImplementedError" in source):
        print(f"Fill in make_store in {arguments.into / FACTORY_FILE} first.")
    if CI_FILE in written:
        print(f"Name your copy of memory-contract in {arguments.into / CI_FILE}.")
    if secret:
        print(f"The store is named in the environment as {STORE_URL}: its URL holds a password.")
    print(f"Next: memory-contract check {shown}")
    return 0


def _find_packages(folder: Path) -> tuple[str, str]:
    """What the CI step installs: a comment, and arguments of pip beside the kit."""
    if any((folder / name).is_file() for name in ("pyproject.toml", "setup.py")):
        return "The project with its store.", ". "
    if (folder / "requirements.txt").is_file():
        return "What the store needs.", "-r requirements.txt "
    return "Add the packages that your store needs.", ""


def _find_factory(target: str | None) -> tuple[str, str]:
    """The target to check, and the source of the factory that it needs."""
    ours = f"{Path(FACTORY_FILE).stem}:make_store"
    if target is None:
        return ours, _EXAMPLE
    with translate_errors():
        source = find_factory_source(target)
    return (ours, source) if source else (target, "")


def _write(path: Path, text: str) -> bool:
    """Write a new file; leave one alone that is there."""
    if path.exists():
        sys.stderr.write(f"{path} is there already: left as it is.\n")
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error
    print(f"Wrote {path}.")
    return True
