"""A proxy between a store and its server that loses, cuts, delays, freezes and invents replies.

It reads the wire protocols of Redis and PostgreSQL, so that it can strike where it matters: after
the server did what it was asked, and before it can say so. It speaks no TLS, and knows one server,
no cluster.
"""

from memory_contract.faults.proxy.fault_queue import ProxyFault, ProxyFaultError, Struck
from memory_contract.faults.proxy.proxy import Proxy, ProxyError

__all__ = ["Proxy", "ProxyError", "ProxyFault", "ProxyFaultError", "Struck"]
