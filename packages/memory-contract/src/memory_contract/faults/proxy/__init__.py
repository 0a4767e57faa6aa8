"""A proxy between a store and its server that loses, cuts, delays, freezes or forges replies.

It parses the wire protocols of Redis and PostgreSQL, so that a fault can strike after the server
executed a request and before its reply arrives. No TLS, no clusters.
"""

from memory_contract.faults.proxy.fault_queue import ProxyFault, ProxyFaultError, ProxyFaultEvent
from memory_contract.faults.proxy.proxy import Proxy, ProxyError

__all__ = ["Proxy", "ProxyError", "ProxyFault", "ProxyFaultError", "ProxyFaultEvent"]
