"""Adapters for frameworks, one module each. None is imported by default.

An adapter follows the semantics of its framework and takes any open store, sync or async. It stores
a framework's message as a `ChatMessage`, with the framework's exact form beside it (`forms`).
"""
