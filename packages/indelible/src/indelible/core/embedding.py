"""Vectors of texts, computed by the embedder of a store.

`embed` of an embedder may be a function or a coroutine function. With `embed_many`, several texts
take one call. An async store runs blocking embedders in a thread, so that they do not hold up its
event loop; a blocking store runs coroutines on an event loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from indelible.core.codec import format_value
from indelible.errors import UsageError
from indelible.model import Embedder, Payload, Summary

Vector = tuple[float, ...]


def embed(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    """Compute the vectors of texts."""
    _check_texts(texts)
    many = getattr(embedder, "embed_many", None)
    if many is not None and len(texts) > 1:
        return _check_vectors(embedder, texts, _call(many, list(texts)))
    return _check_vectors(embedder, texts, [_call(embedder.embed, text) for text in texts])


async def embed_async(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    """Compute the vectors of texts, outside of the event loop's thread if `embed` blocks."""
    _check_texts(texts)
    many = getattr(embedder, "embed_many", None)
    if many is not None and len(texts) > 1:
        return _check_vectors(embedder, texts, await _call_async(many, list(texts)))
    found = [await _call_async(embedder.embed, text) for text in texts]
    return _check_vectors(embedder, texts, found)


def embed_summaries(embedder: Embedder | None, values: Iterable[Any]) -> Iterable[Any]:
    """Give a vector to each summary that has none."""
    if embedder is None or not is_several(values):
        # What is no list of entries is refused when they are built.
        return values
    values = list(values)
    texts = [value.text for value in values if _lacks_vector(value)]
    return _add_vectors(embedder, values, embed(embedder, texts))


async def embed_summaries_async(embedder: Embedder | None, values: Iterable[Any]) -> Iterable[Any]:
    """Give a vector to each summary that has none."""
    if embedder is None or not is_several(values):
        # What is no list of entries is refused when they are built.
        return values
    values = list(values)
    texts = [value.text for value in values if _lacks_vector(value)]
    return _add_vectors(embedder, values, await embed_async(embedder, texts))


def check_embedder(embedder: object) -> None:
    """Refuse an embedder that lacks what every embedder has."""
    name = getattr(embedder, "name", None)
    if embedder is None or (isinstance(name, str) and callable(getattr(embedder, "embed", None))):
        return
    raise UsageError(
        f"not an embedder: {format_value(embedder)}. It needs a `name`, which is stored with its"
        " vectors, and a method `embed` from a text to a list of numbers"
    )


def to_floats(vector: Any) -> Vector:
    """Convert a vector of any library to floats."""
    if not isinstance(vector, str | bytes | Mapping):
        with suppress(TypeError, ValueError, OverflowError):
            return tuple(map(float, vector))
    raise UsageError(f"not a vector: {format_value(vector)}", value=vector)


def is_several(items: object) -> bool:
    """Return whether a value holds several; text, a mapping and a payload are one, but iterable."""
    return isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping | Payload)


def _lacks_vector(value: Any) -> bool:
    return isinstance(value, Summary) and value.vector is None


def _add_vectors(embedder: Embedder, values: list[Any], vectors: Iterable[Vector]) -> list[Any]:
    left = iter(vectors)
    return [
        value.model_copy(update={"vector": next(left), "embedder": embedder.name})
        if _lacks_vector(value)
        else value
        for value in values
    ]


def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    answer = function(argument)
    if not inspect.isawaitable(answer):
        return answer
    # The calling thread may have a running event loop, so this one gets a thread of its own.
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


def _check_vectors(embedder: Embedder, texts: Sequence[str], answers: Any) -> list[Vector]:
    """Check that there is one flat vector of finite numbers for each text."""
    try:
        answers = list(answers)
    except TypeError:
        raise _build_shape_error(embedder, f"something else than a list: {answers!r:.60}") from None
    if len(answers) != len(texts):
        raise _build_shape_error(embedder, f"{len(answers)} vectors for {len(texts)} texts")
    return [_check_vector(embedder, answer) for answer in answers]


def _check_vector(embedder: Embedder, answer: Any) -> Vector:
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


def _build_shape_error(embedder: Embedder, what: str) -> UsageError:
    return UsageError(
        f"the embedder {embedder.name!r} returned {what}; embed returns one flat list of numbers,"
        " embed_many one such list for each text. Nothing was written",
        embedder=embedder.name,
    )
