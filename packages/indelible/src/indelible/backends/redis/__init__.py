"""Redis, Valkey and Redis Cluster through redis-py. See DESIGN.md beside this file."""

from indelible.backends.redis.awaiting import AsyncRedisBackend
from indelible.backends.redis.blocking import RedisBackend
from indelible.backends.redis.options import RedisOptions

__all__ = ["AsyncRedisBackend", "RedisBackend", "RedisOptions"]
