"""A call that has little time left does not wait longer for a connection than for an answer."""

import indelible
from indelible.backends.redis.lanes import Lane, Parcel
from indelible.backends.redis.network import Carry
from indelible.core.patience import Patience


def connected(store, seconds):
    """A connection that was made for a call with so much time left."""
    lanes = store._backend._server(None)._readers
    lane = Lane()
    lanes._connected(lane, [Parcel(Carry(None, (), Patience(seconds)))])
    connection = lane.connection
    lanes._drop(lane)
    return connection


def test_connecting_takes_no_longer_than_the_call_may(url):
    with indelible.open(url, timeout_s=60) as store:
        connection = connected(store, 20)
        assert 0 < connection.socket_timeout <= 20
        assert 0 < connection.socket_connect_timeout <= 5
        connection = connected(store, 2)
        assert 0 < connection.socket_timeout <= 2
        assert 0 < connection.socket_connect_timeout <= 2
        connection = connected(store, 40)
        assert 20 < connection.socket_timeout <= 40


def test_a_url_may_ask_for_less(url):
    with indelible.open(f"{url}?socket_timeout=3&socket_connect_timeout=1") as store:
        connection = connected(store, 8)
        assert connection.socket_timeout == 3
        assert connection.socket_connect_timeout == 1
