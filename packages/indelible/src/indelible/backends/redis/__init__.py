"""Redis, Valkey and Redis Cluster through redis-py. See DESIGN.md beside this file."""

from indelible.backends.redis.driver import RedisBackend
from indelible.backends.redis.driver_async import AsyncRedisBackend
from indelible.backends.redis.options import RedisOptions

__all__ = ["AsyncRedisBackend", "RedisBackend", "RedisOptions"]
