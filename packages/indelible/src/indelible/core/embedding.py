"""Vectors of texts, computed by the embedder of a store.

`to_embedder` accepts an object with `name` and `embed`, an `Embeddings` of LangChain, or a
function. Any of their methods may be a coroutine function. An async store calls blocking methods in
a thread, so that they do not block its event loop; a blocking store runs coroutines on an event
loop of their own.

A failing embedder must not lose an entry, nor fail a search that can go by words: `try_embed` logs
the error and returns None.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from indelible.core.codec import format_value
from indelible.errors import UnavailableError, UsageError
from indelible.model import Embedder, Payload, Summary

Vector = tuple[float, ...]

# The embedder of vectors that callers pass without naming one.
NO_EMBEDDER: Final = "unnamed"


class Embeddings(Protocol):
    """An `Embeddings` of LangChain; its awaited methods are used by async stores if it has them."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Compute the vectors of texts."""
        ...

    def embed_query(self, text: str) -> list[float]:
        """Compute the vector of a query."""
        ...


# The types of `open(embedder=…)`.
AnyEmbedder = Embedder | Embeddings | Callable[[Any], Any]

_LOGGER: Final = logging.getLogger("indelible.embedding")
# Attributes in which LangChain's classes and others name their model.
_MODEL_FIELDS: Final = ("model", "model_name", "model_id", "deployment", "repo_id")
_SEVERAL: Final = re.compile(r"\b(list|tuple|Sequence|Iterable|Collection)\b", re.IGNORECASE)
# Texts in an annotation, such as the notes of `Annotated`; the name of a type may be one, too.
_NOTE: Final = re.compile(r"(?<!ForwardRef\()(['\"]).*?\1")


@dataclass(frozen=True, slots=True)
class TextEmbedder:
    """The embedder of a store, in one form for all that `open` accepts."""

    name: str
    # From a text to its vector.
    one: Callable[[str], Any] | None
    # From several texts to their vectors.
    many: Callable[[list[str]], Any] | None
    # From a query to its vector, if queries are embedded in another way than stored texts.
    query: Callable[[str], Any] | None = None
    # The embedder with awaited methods, for async stores, if there is another one.
    awaited: TextEmbedder | None = None

    def list_calls(
        self, texts: Sequence[str], *, query: bool
    ) -> tuple[bool, list[tuple[Callable[[Any], Any], Any]]]:
        """Return whether one call covers all texts, and the calls with their arguments."""
        if query and self.query is not None:
            return False, [(self.query, text) for text in texts]
        if self.many is not None and texts and (self.one is None or len(texts) > 1):
            return True, [(self.many, list(texts))]
        assert self.one is not None or not texts
        return False, [(self.one, text) for text in texts if self.one is not None]


def to_embedder(given: AnyEmbedder | None) -> TextEmbedder | None:
    """Convert the argument `embedder` of `open`."""
    if given is None:
        return None
    name, method = getattr(given, "name", None), getattr(given, "embed", None)
    if isinstance(given, type) or inspect.isbuiltin(given):
        raise _build_refusal(given)
    if isinstance(name, str) and name and callable(method):
        return TextEmbedder(name, method, getattr(given, "embed_many", None))
    if callable(getattr(given, "embed_documents", None)):
        return _from_langchain(given)
    if callable(given) and method is None:
        return _from_function(given)
    raise _build_refusal(given)


def _build_refusal(given: object) -> UsageError:
    return UsageError(
        f"not an embedder: {format_value(given)}. It needs a `name`, which is stored with its"
        " vectors, and a method `embed` from a text to a list of numbers. It may also be an"
        " Embeddings of LangChain, or a function, but no lambda, from a text or a list of texts"
    )


def _from_langchain(given: Any) -> TextEmbedder:
    if not callable(getattr(given, "embed_query", None)):
        raise _build_refusal(given)
    name = _build_name(given)
    awaited = None
    if hasattr(given, "aembed_documents") and hasattr(given, "aembed_query"):
        awaited = TextEmbedder(name, None, given.aembed_documents, given.aembed_query)
    return TextEmbedder(name, None, given.embed_documents, given.embed_query, awaited)


def _from_function(given: Callable[..., Any]) -> TextEmbedder:
    """Convert a function: it takes one text, unless its parameter is annotated as several."""
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise _build_refusal(given)
    owner = getattr(given, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        name = f"{_build_name(owner)}.{name}"
    annotation: object = None
    with suppress(TypeError, ValueError):
        first = next(iter(inspect.signature(given).parameters.values()), None)
        annotation = None if first is None else first.annotation
    if _SEVERAL.search(_NOTE.sub("", str(annotation))):
        return TextEmbedder(name, None, given)
    return TextEmbedder(name, given, None)


def _build_name(given: object) -> str:
    """Build the name of an object that has none: its class, and its model."""
    for field in _MODEL_FIELDS:
        model = getattr(given, field, None)
        if isinstance(model, str) and model:
            return f"{type(given).__name__}:{model}"
    return type(given).__name__


def embed(embedder: TextEmbedder, texts: Sequence[str], *, query: bool = False) -> list[Vector]:
    """Compute the vectors of texts, or raise an `UnavailableError` if the embedder raises."""
    _check_texts(texts)
    together, calls = embedder.list_calls(texts, query=query)
    try:
        answers = [_call(function, argument) for function, argument in calls]
    except Exception as error:
        raise _build_failure(embedder, error) from error
    return _check_vectors(embedder, texts, answers[0] if together else answers)


async def embed_async(
    embedder: TextEmbedder, texts: Sequence[str], *, query: bool = False
) -> list[Vector]:
    """Compute the vectors of texts, outside of the event loop's thread if the embedder blocks."""
    _check_texts(texts)
    together, calls = (embedder.awaited or embedder).list_calls(texts, query=query)
    try:
        answers = [await _call_async(function, argument) for function, argument in calls]
    except Exception as error:
        raise _build_failure(embedder, error) from error
    return _check_vectors(embedder, texts, answers[0] if together else answers)


def try_embed(embedder: TextEmbedder, text: str, *, query: bool = False) -> Vector | None:
    """Compute the vector of a text; None, and a warning in the log, if the embedder raises."""
    try:
        (vector,) = embed(embedder, [text], query=query)
    except UnavailableError as error:
        _warn(embedder, error, query=query)
        return None
    return vector


async def try_embed_async(
    embedder: TextEmbedder, text: str, *, query: bool = False
) -> Vector | None:
    """Compute the vector of a text; None, and a warning in the log, if the embedder raises."""
    try:
        (vector,) = await embed_async(embedder, [text], query=query)
    except UnavailableError as error:
        _warn(embedder, error, query=query)
        return None
    return vector


def _build_failure(embedder: TextEmbedder, error: Exception) -> UnavailableError:
    # The message of its error may contain the text, so only its type is given.
    return UnavailableError(
        f"the embedder {embedder.name!r} failed with {type(error).__name__}",
        embedder=embedder.name,
    )


def _warn(embedder: TextEmbedder, error: UnavailableError, *, query: bool) -> None:
    _LOGGER.warning(
        "the embedder %r failed with %s: %s",
        embedder.name,
        type(error.__cause__).__name__,
        "the search goes by words alone"
        if query
        else "a memory is stored without a vector, until embed_missing",
    )


def list_texts(values: Iterable[Any]) -> list[str]:
    """List the texts of the values that are summaries without a vector."""
    return [value.text for value in values if _lacks_vector(value)]


def add_vectors(embedder: TextEmbedder, values: list[Any], vectors: Iterable[Vector]) -> list[Any]:
    """Add the vectors to the summaries that have none."""
    left = iter(vectors)
    return [
        value.model_copy(update={"vector": next(left), "embedder": embedder.name})
        if _lacks_vector(value)
        else value
        for value in values
    ]


def to_floats(vector: Any) -> Vector:
    """Convert a vector of any library to floats."""
    if not isinstance(vector, str | bytes | Mapping):
        with suppress(TypeError, ValueError, OverflowError):
            return tuple(map(float, vector))
    raise UsageError(f"not a vector: {format_value(vector)}", value=vector)


def is_several(items: object) -> bool:
    """Return whether an argument is several items; a text, a mapping and a payload are one."""
    return isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping | Payload)


def _lacks_vector(value: Any) -> bool:
    return isinstance(value, Summary) and value.vector is None


def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    answer = function(argument)
    if not inspect.isawaitable(answer):
        return answer
    # The calling thread may have a running event loop, so the coroutine runs in another thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _wait_for(answer)).result()


async def _call_async(function: Callable[[Any], Any], argument: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(argument)
    answer = await asyncio.to_thread(function, argument)
    return await answer if inspect.isawaitable(answer) else answer


async def _wait_for(answer: Any) -> Any:
    return await answer


def _check_texts(texts: Sequence[object]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"not a text to embed: {format_value(text)}", value=text)


def _check_vectors(embedder: TextEmbedder, texts: Sequence[str], answers: Any) -> list[Vector]:
    """Check that there is one flat vector of finite numbers for each text."""
    try:
        answers = list(answers)
    except TypeError:
        raise _build_shape_error(embedder, f"something else than a list: {answers!r:.60}") from None
    if len(answers) != len(texts):
        raise _build_shape_error(embedder, f"{len(answers)} vectors for {len(texts)} texts")
    return [_check_vector(embedder, answer) for answer in answers]


def _check_vector(embedder: TextEmbedder, answer: Any) -> Vector:
    shape = getattr(answer, "shape", None)
    if shape is not None and len(shape) != 1:
        raise _build_shape_error(embedder, f"an array of shape {tuple(shape)} for one text")
    if isinstance(answer, list | tuple) and answer and isinstance(answer[0], list | tuple):
        raise _build_shape_error(embedder, f"a list of {len(answer)} vectors for one text")
    try:
        vector = to_floats(answer)
    except UsageError:
        raise _build_shape_error(embedder, f"{answer!r:.60} for one text") from None
    if not vector or not all(map(math.isfinite, vector)):
        what = "numbers that are not finite" if vector else "an empty vector"
        raise _build_shape_error(embedder, f"{what} for one text")
    return vector


def _build_shape_error(embedder: TextEmbedder, what: str) -> UsageError:
    return UsageError(
        f"the embedder {embedder.name!r} returned {what}; embed returns one flat list of numbers,"
        " embed_many one such list for each text. A function that takes several texts says so:"
        " `texts: list[str]`. Nothing was written",
        embedder=embedder.name,
    )
