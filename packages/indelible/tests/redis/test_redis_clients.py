"""Clients that an application has already, and every way to reach a server."""

import asyncio
import gc
import threading
import warnings

import fakeredis
import pytest
import redis
import redis.asyncio

import indelible
from indelible import MemoryStoreBackendError, UsageError
from indelible.backends.redis.connection_io import has_ended
from indelible.backends.redis.options import RedisOptions, build_client, build_cluster_client
from tests.support.tls_front import CERTIFICATE, TlsFront
from tests.support.wait import WAIT_S_MAX, wait_until

PASSWORD = "s3cret and/more"
VECTOR = (0.1, -2.5, 3e-7)


def use(store):
    """A bit of everything, with bytes that are no ASCII."""
    store.add_message("s", "user", "Grüße, \N{GRINNING FACE}\0", key="k")
    assert store.add_message("s", "user", "Grüße, \N{GRINNING FACE}\0", key="k").replayed
    snapshot = store.save_snapshot("s", label="vor dem Fehler é")
    store.add_summary("s", "all of it", VECTOR, embedder="e")
    store.clear("s")
    store.rollback_to_snapshot("s", snapshot.id)
    store.undo("s")
    store.undo("s")
    assert [each.label for each in store.list_snapshots("s")] == ["vor dem Fehler é"]
    assert store.get_summaries("s")[0].summary.vector == VECTOR
    assert store.get_history("s")[0].content == "Grüße, \N{GRINNING FACE}\0"
    assert store.list_sessions().ids == ["s"]
    assert store.verify().ok


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode_responses", [False, True])
def test_a_client_works_however_it_decodes(server, decode_responses, protocol):
    client = server.client(decode_responses=decode_responses, protocol=protocol)
    with indelible.open(client) as store:
        use(store)
        assert store.claims().durability == "process"
    assert client.ping(), "the application's client stays open"
    client.close()


@pytest.mark.parametrize("decode_responses", [False, True])
async def test_an_async_client_works_however_it_decodes(server, decode_responses):
    client = redis.asyncio.Redis(port=server.port, decode_responses=decode_responses)
    async with indelible.open_async(client) as store:
        await store.add_message("s", "user", "Grüße")
        await store.add_summary("s", "all", VECTOR, embedder="e")
        snapshot = await store.save_snapshot("s")
        await store.rollback_to_snapshot("s", snapshot.id)
        assert (await store.get_history("s"))[0].content == "Grüße"
        assert (await store.get_summaries("s"))[0].summary.vector == VECTOR
    assert await client.ping()
    await client.aclose()


def test_a_simulated_server_works_and_says_so():
    with indelible.open(fakeredis.FakeRedis(decode_responses=True)) as store:
        use(store)
        claims = store.claims()
        assert claims.simulated
        assert claims.durability == "none"
        assert [risk.subject for risk in store.risks()] == ["a simulated server"]
        assert store.forget("s").left == ()


async def test_an_async_simulated_server_works_and_says_so():
    async with indelible.open_async(fakeredis.FakeAsyncRedis()) as store:
        await store.add_message("s", "user", "hi")
        assert [message.content for message in await store.get_history("s")] == ["hi"]
        assert (await store.claims()).simulated


def test_a_pool_that_waits_works(server):
    pool = redis.BlockingConnectionPool(port=server.port, max_connections=2, timeout=5)
    with indelible.open(redis.Redis(connection_pool=pool)) as store:
        use(store)
    pool.disconnect()


def test_a_client_with_its_own_deadline_keeps_it(server):
    client = server.client(socket_timeout=3.5)
    with indelible.open(client, timeout_s=1) as store:
        store.add_message("s", "user", "hi")
    connection = client.connection_pool.get_connection()
    assert connection._sock.gettimeout() == 3.5
    client.connection_pool.release(connection)
    client.close()


def test_a_unix_socket(start, tmp_path):
    # A socket's path is short by nature, and a test's folder may not be.
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        start(unixsocket=f"{folder}/s")
        with indelible.open(f"unix://{folder}/s?db=2") as store:
            use(store)


def test_a_password_from_the_url_is_used_and_never_shown(start):
    from urllib.parse import quote

    server = start(requirepass=PASSWORD.replace(" and/more", ""))
    secret = server.options["requirepass"]
    place = server.url.removeprefix("redis://")
    with indelible.open(f"redis://:{quote(secret)}@{place}") as store:
        use(store)
        assert secret not in repr(store._backend) + repr(store._backend._options)
    for wrong in (f"redis://:wrong@{place}", f"redis://ann:{secret}x@{place}"):
        with pytest.raises(MemoryStoreBackendError) as caught:
            indelible.open(wrong)
        assert "password" in str(caught.value)
        said = f"{caught.value!r} {caught.value} {caught.value.details}"
        assert "wrong@" not in said
        assert secret not in said
        assert not caught.value.retryable


def test_a_database_number_is_a_world_of_its_own(server):
    with indelible.open(server.url + "/1") as one, indelible.open(server.url + "/2") as two:
        one.add_message("s", "user", "hi")
        assert two.session("s").status == "new"
        assert two.list_sessions().ids == []


@pytest.mark.parametrize(
    "wrong",
    ["redis://host:notaport", "redis+cluster://", "redis+cluster://host:x", "redis://h/x?db=y"],
)
def test_a_url_that_cannot_be_read_is_refused_without_quoting_it(wrong):
    with pytest.raises(UsageError) as caught:
        indelible.open(wrong, timeout_s=0.2)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost/0?foo=1",
        "redis+cluster://localhost:7000?foo=1",
        "unix:///tmp/socket?foo=1",
        "redis://localhost/0?db=1&foo=",
    ],
)
def test_a_parameter_that_no_url_has_is_refused_and_named(url):
    with pytest.raises(UsageError, match=r"no parameter 'foo'.*client_name.*socket_timeout"):
        indelible.open(url)


def test_parameters_of_tls_belong_to_a_tls_url():
    with pytest.raises(UsageError, match="ssl_ca_certs"):
        indelible.open(f"redis://localhost/0?ssl_ca_certs={CERTIFICATE}")


@pytest.fixture
def tls_place(server):
    front = TlsFront(server.port)
    yield f"localhost:{front.port}"
    front.close()


def test_tls_with_a_certificate_that_is_known(tls_place):
    url = f"rediss://{tls_place}/0?ssl_ca_certs={CERTIFICATE}"
    with indelible.open(url) as store:
        use(store)


async def test_tls_for_async_code(tls_place):
    url = f"rediss://{tls_place}/0?ssl_ca_certs={CERTIFICATE}"
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "hi")
        assert len(await store.get_history("s")) == 1


def test_closing_waits_for_the_end_of_tls_since_the_loop_may_end_next(server):
    may_end = threading.Event()
    front = TlsFront(server.port, may_end=may_end)
    url = f"rediss://localhost:{front.port}/0?ssl_ca_certs={CERTIFICATE}"

    async def use_and_close():
        async with indelible.open_async(url) as store:
            await store.add_message("s", "user", "hi")
            asyncio.get_running_loop().call_later(0.05, may_end.set)

    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(use_and_close())
        gc.collect()
    front.close()
    assert [str(each.message) for each in caught] == []


def test_a_certificate_that_nobody_knows_is_refused(tls_place):
    with pytest.raises(indelible.UnavailableError) as caught:
        indelible.open(f"rediss://{tls_place}", timeout_s=1)
    assert caught.value.landed == "no"


def test_tls_is_asked_for_by_the_url():
    def options(target):
        return RedisOptions(target=target, shown="x", namespace="", durability=None, timeout_s=1)

    url = "rediss://ann:pw@host:7000/0?ssl_cert_reqs=required"
    pool = build_client(options(url), awaited=False).connection_pool
    assert issubclass(pool.connection_class, redis.SSLConnection)
    assert pool.connection_kwargs["ssl_cert_reqs"] == "required"
    # The async client of a cluster connects when it is awaited.
    for scheme, kind in (
        ("rediss", redis.asyncio.SSLConnection),
        ("redis", redis.asyncio.Connection),
    ):
        client = build_cluster_client(options(f"{scheme}+cluster://ann:pw@host:7000"), awaited=True)
        (node,) = client.nodes_manager.startup_nodes.values()
        assert node.connection_class is kind


def test_a_closed_store_refuses_calls(url):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi")
    with pytest.raises(indelible.ClosedError) as caught:
        store.add_message("s", "user", "late")
    assert caught.value.__cause__ is None
    store.close()


class Appender(threading.Thread):
    """Appends until it gets an error."""

    def __init__(self, store, name):
        super().__init__(name=name)
        self.store = store
        self.stored = []
        self.error = None

    def run(self):
        while self.error is None:
            text = f"{self.name} {len(self.stored)}"
            try:
                self.store.add_message("s", "user", text)
                self.stored.append(text)
            except indelible.MemoryStoreError as error:
                self.error = error


def list_named(client, name):
    return [each for each in client.client_list() if each["name"] == name]


def wait_until_disconnected(client, name):
    # The server learns of the end of a connection a moment later.
    wait_until(lambda: not list_named(client, name), what="the end of the store's connections")


def check_closed(url, client, appenders):
    """Every call that was answered is stored, and every other was refused."""
    for each in appenders:
        each.join(WAIT_S_MAX)
        assert type(each.error) is indelible.ClosedError, repr(each.error)
        assert each.error.__cause__ is None
    with indelible.open(url) as store:
        found = sorted(message.content for message in store.get_history("s"))
    assert found == sorted(text for each in appenders for text in each.stored)
    wait_until_disconnected(client, "closing")


def start_appenders(store):
    appenders = [Appender(store, f"thread-{number}") for number in range(4)]
    for each in appenders:
        each.start()
    wait_until(lambda: all(each.stored for each in appenders), what="an append of every thread")
    return appenders


@pytest.mark.parametrize("attempt", range(10))
def test_another_thread_may_close_a_store_in_use(url, client, attempt):
    store = indelible.open(f"{url}?client_name=closing")
    appenders = start_appenders(store)
    store.close()
    check_closed(url, client, appenders)


def test_closing_waits_for_an_append_that_was_sent(url, client):
    store = indelible.open(f"{url}?client_name=closing", timeout_s=WAIT_S_MAX)
    appenders = start_appenders(store)
    closing = threading.Thread(target=store.close)
    client.client_pause(WAIT_S_MAX * 1000, all=False)
    try:
        # A call that the server holds back has the flag of a blocked client.
        wait_until(
            lambda: any("b" in each["flags"] for each in list_named(client, "closing")),
            what="an append that the server holds back",
        )
        closing.start()
        wait_until(lambda: store._backend._closed, what="the store's closing")
        assert list_named(client, "closing"), "the connection is still in use"
        assert closing.is_alive()
    finally:
        client.client_unpause()
    closing.join(WAIT_S_MAX)
    check_closed(url, client, appenders)


def test_a_call_that_finds_its_server_after_the_end_is_refused(url, client):
    store = indelible.open(f"{url}?client_name=closing")
    servers = store._backend.find_servers()
    find_channel = servers.find_channel

    def close_and_find(request):
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join()
        return find_channel(request)

    servers.find_channel = close_and_find
    with pytest.raises(indelible.ClosedError) as caught:
        store.add_message("s", "user", "late")
    assert caught.value.__cause__ is None
    with indelible.open(url) as other:
        assert other.get_history("s") == []
    wait_until_disconnected(client, "closing")


def test_a_connection_that_another_thread_closed_has_ended(server):
    connection = redis.Connection(port=server.port)
    connection.connect()
    # As `can_read` meets it if it is closed after `can_read` has found it open.
    connection._parser._sock = None
    assert has_ended(connection)
    connection.disconnect()
