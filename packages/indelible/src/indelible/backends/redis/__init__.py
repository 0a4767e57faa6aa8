"""Redis, Valkey and Redis Cluster through redis-py. See DESIGN.md beside this file."""

from indelible.backends.redis.connections import RedisOptions
from indelible.backends.redis.driver import RedisBackend
from indelible.backends.redis.driver_async import AsyncRedisBackend

__all__ = ["AsyncRedisBackend", "RedisBackend", "RedisOptions"]
