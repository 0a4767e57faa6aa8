"""A store in plain memory: the reference that the other engines are compared with."""

from indelible.backends.memory.backend import AsyncMemoryBackend, MemoryBackend

__all__ = ["AsyncMemoryBackend", "MemoryBackend"]
