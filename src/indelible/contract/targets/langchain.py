"""A framework's store."""

from __future__ import annotations

from indelible.contract.adapter import Adapter


def adapter_of_factory(name: str) -> Adapter:
    """The adapter of `factory(session_id, workspace)`."""
    raise NotImplementedError(name)
