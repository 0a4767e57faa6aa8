"""Factories of stores on a server: its own by default, or the one that the kit puts in between."""

from __future__ import annotations

import json
import os
import warnings

import redis

with warnings.catch_warnings():
    # It says that it is no longer maintained.
    warnings.simplefilter("ignore")
    from langchain_community.chat_message_histories import RedisChatMessageHistory

# Where the server of this test run is; other processes have it from the environment.
HERE = os.environ["INDELIBLE_TEST_REDIS"]


def langchain_history(session_id, workspace, server=HERE):
    return RedisChatMessageHistory(session_id, url=server, key_prefix=f"{workspace.name}:")


class Transcripts:
    """A session store of the Claude Agent SDK on Redis, with no retries and an eye on the clock."""

    def __init__(self, workspace, server):
        self._place = workspace.name
        self._client = redis.Redis.from_url(server, socket_timeout=2, retry=None)

    async def append(self, key, entries):
        if entries:
            self._client.rpush(f"{self._place}:{key['session_id']}", *map(json.dumps, entries))

    async def load(self, key):
        return list(
            map(json.loads, self._client.lrange(f"{self._place}:{key['session_id']}", 0, -1))
        )

    async def close(self):
        self._client.close()


def session_store(workspace, server=HERE):
    return Transcripts(workspace, server)
