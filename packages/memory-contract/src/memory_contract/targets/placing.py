"""How a class is told its workspace: which parameters of its constructor mean a place."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Form = Literal["folder", "file", "url"]
_Parameter = inspect.Parameter

# The last word of a parameter that means a place: `path`, `data_dir`, `persist_directory`.
_FOLDERS: Final = frozenset(
    {"path", "directory", "dir", "folder", "root", "location", "dirname", "basedir", "datadir"}
)
_FILES: Final = frozenset({"file", "filename", "filepath", "database", "dbpath", "dbname"})
_FILE: Final = "store.db"
_STARS: Final = (_Parameter.VAR_POSITIONAL, _Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Given:
    """What one parameter is given."""

    parameter: str
    form: Form
    # Whether it is given as text rather than as a `Path`.
    text: bool = False
    # Of a URL, what stands before the path.
    scheme: str = ""
    file: str = _FILE

    def value(self, workspace: Path) -> Path | str:
        """The workspace, or a place in it."""
        if self.form == "url":
            return f"{self.scheme}:///{workspace / self.file}"
        place = workspace if self.form == "folder" else workspace / self.file
        return str(place) if self.text else place


@dataclass(frozen=True, slots=True)
class Placing:
    """A way to make an instance."""

    given: tuple[Given, ...] = ()
    # Whether the workspace is the only argument of a constructor that takes any.
    starred: bool = False
    # Whether what it is given surely means a place; else that is to be seen.
    sure: bool = True

    @property
    def told(self) -> bool:
        """Whether the instance knows its workspace."""
        return self.starred or bool(self.given)

    def make(self, made: Callable[..., Any], workspace: Path) -> Any:
        """An instance."""
        if self.starred:
            return made(workspace)
        values = {given.parameter: given.value(workspace) for given in self.given}
        return made(*_taken_by_position(made, values), **values)


def _taken_by_position(made: Callable[..., Any], values: dict[str, Any]) -> list[Any]:
    """Take the values out that have no keyword, with the defaults that stand before them."""
    if not values:
        return []
    alone = [p for p in inspect.signature(made).parameters.values() if p.kind is p.POSITIONAL_ONLY]
    last = max((place for place, p in enumerate(alone) if p.name in values), default=-1)
    return [values.pop(p.name, p.default) for p in alone[: last + 1]]


def placings(made: Callable[..., Any]) -> list[Placing]:
    """The ways to make an instance, the likeliest first."""
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return [Placing()]
    plain = [p for p in parameters if p.kind not in _STARS]
    if named := [p for p in plain if p.name == "workspace"]:
        return [Placing((Given("workspace", "folder", text=_wants_text(named[0])),))]
    required = [p for p in plain if p.default is p.empty]
    places = [p for p in plain if _is_place(p)]
    if required:
        first = next((p for p in required if p in places), required[0])
        return list(_of([first] if first in places else [first, *_with_default(places)]))
    if places:
        # Whoever has a default place and is not told another one would write there.
        return list(_of(_with_default(places) or places[:1]))
    return [*_guesses(parameters, plain), Placing()]


def _with_default(places: list[_Parameter]) -> list[_Parameter]:
    return [p for p in places if p.default is not None]


def _of(parameters: list[_Parameter]) -> Iterator[Placing]:
    forms = [
        _forms(p, _FILE if not place else f"{p.name}.db") for place, p in enumerate(parameters)
    ]
    for turn in range(max(map(len, forms))):
        yield Placing(tuple(form[min(turn, len(form) - 1)] for form in forms))
    if len(forms) > 1:
        # The others may be names within the first.
        yield from (Placing((given,)) for given in forms[0])


def _guesses(parameters: list[_Parameter], plain: list[_Parameter]) -> Iterator[Placing]:
    unknown = [p for p in plain if not _is_setting(p)]
    if len(unknown) == 1:
        yield Placing((_forms(unknown[0])[0],), sure=False)
    kinds = {p.kind for p in parameters}
    if _Parameter.VAR_POSITIONAL in kinds and not plain:
        yield Placing(starred=True, sure=False)
    if _Parameter.VAR_KEYWORD in kinds:
        yield Placing((Given("workspace", "folder"),), sure=False)


def _is_setting(parameter: _Parameter) -> bool:
    """Whether it is no place: a number, a switch, or something that need not be there."""
    return parameter.default is None or isinstance(parameter.default, int | float)


def _is_place(parameter: _Parameter) -> bool:
    default, annotation = parameter.default, _annotation(parameter)
    if isinstance(default, int | float):
        return False
    if isinstance(default, os.PathLike) or "Path" in annotation or _scheme(parameter):
        return True
    if annotation and not any(word in annotation for word in ("str", "Any")):
        return False
    return parameter.name.lower().rpartition("_")[2] in _FOLDERS | _FILES


def _annotation(parameter: _Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    return inspect.formatannotation(parameter.annotation)


def _wants_text(parameter: _Parameter) -> bool:
    annotation = _annotation(parameter)
    if annotation:
        return "str" in annotation and "Path" not in annotation
    return isinstance(parameter.default, str)


def _scheme(parameter: _Parameter) -> str:
    """What stands before the path, if the default is the URL of a file."""
    default = parameter.default
    if isinstance(default, str) and default.startswith("sqlite") and ":///" in default:
        return default.partition(":///")[0]
    return ""


def _is_file(parameter: _Parameter) -> bool:
    default = parameter.default
    words = parameter.name.lower().split("_")
    if words[-1] in _FILES or "db" in words:
        return True
    if not isinstance(default, str | os.PathLike):
        return False
    return default == ":memory:" or bool(Path(default).suffix)


def _forms(parameter: _Parameter, file: str = _FILE) -> list[Given]:
    """What a parameter may want, the likeliest first."""
    name = parameter.name
    if scheme := _scheme(parameter):
        return [Given(name, "url", text=True, scheme=scheme, file=file)]
    forms: tuple[Form, ...] = ("file", "folder") if _is_file(parameter) else ("folder", "file")
    kinds = [True] if _wants_text(parameter) else [False]
    if not _annotation(parameter) and not isinstance(parameter.default, str | os.PathLike):
        kinds = [False, True]
    return [Given(name, form, text=text, file=file) for text in kinds for form in forms]
