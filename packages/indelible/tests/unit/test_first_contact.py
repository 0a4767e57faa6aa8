"""A wrong host or port is an error soon after open, which says what to check."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import indelible
from indelible import UnavailableError, addresses
from tests.support.wait import wait_until

# Whoever tried until this deadline would not be back in time for the test.
LONG_S = 3600
# Of every process, where Linux shows them.
CONNECTIONS = Path("/proc/net/tcp")
SCHEMES = ["redis", "redis+cluster", "postgresql"]


@pytest.fixture(params=["blocking", "async"])
def refuse(request):
    """Opens a store that cannot be reached, and gives the error."""

    async def opened(url, **options):
        if request.param == "blocking":
            indelible.open(url, **options).close()
        else:
            await (await indelible.open_async(url, **options)).close()

    async def open_and_fail(url, **options):
        with pytest.raises(UnavailableError) as caught:
            await opened(url, **options)
        assert type(caught.value) is UnavailableError
        assert (caught.value.landed, caught.value.retryable) == ("no", True)
        assert "Nothing was written." in str(caught.value)
        assert "s3cret" not in str(caught.value) + str(caught.value.__cause__)
        return caught.value

    return open_and_fail


@pytest.fixture
def stuck_names(monkeypatch):
    """Name servers that do not answer until the test is over."""
    over = threading.Event()

    def look_up(host, *_args, **_options):
        over.wait(LONG_S)
        raise socket.gaierror(socket.EAI_AGAIN, host)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield
    over.set()


@pytest.fixture
def closed_port():
    """A port on which nothing listens, and which nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def silent_port():
    """A port on which something listens, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def foreign_port():
    """A port on which a server of another protocol answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_nothing_listens(refuse, scheme, closed_port):
    error = await refuse(f"{scheme}://ann:s3cret@127.0.0.1:{closed_port}", timeout_s=LONG_S)
    assert f"nothing listens on port {closed_port} of 127.0.0.1." in str(error)
    assert "Check the host and the port, and that the server runs" in str(error)
    assert (error.host, error.port) == ("127.0.0.1", closed_port)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_host_is_unknown(refuse, scheme):
    error = await refuse(f"{scheme}://ann:s3cret@no-such-host.invalid:7", timeout_s=LONG_S)
    assert "the host name 'no-such-host.invalid' is not known. " in str(error)
    assert str(error).endswith("Check the host name")


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_something_listens_and_never_answers(refuse, scheme, silent_port):
    error = await refuse(f"{scheme}://ann:s3cret@127.0.0.1:{silent_port}", timeout_s=0.1)
    assert f"port {silent_port} of 127.0.0.1 is open, but what listens there" in str(error)
    assert "whether it is stuck" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_another_server_answers(refuse, scheme, foreign_port):
    error = await refuse(f"{scheme}://ann:s3cret@127.0.0.1:{foreign_port}", timeout_s=LONG_S)
    assert f"port {foreign_port} of 127.0.0.1 is open, but what listens there" in str(error)


@pytest.mark.parametrize("scheme", ["redis+cluster", "postgresql"])
async def test_each_of_several_servers_is_named(refuse, scheme, closed_port, silent_port):
    places = f"127.0.0.1:{closed_port},127.0.0.1:{silent_port}"
    error = await refuse(f"{scheme}://{places}", timeout_s=0.1)
    assert f"nothing listens on port {closed_port} of 127.0.0.1" in str(error)
    assert f"port {silent_port} of 127.0.0.1 is open" in str(error)


def count_connecting(port):
    """How many connections to a port wait for an answer (state SYN_SENT)."""
    lines = [line.split() for line in CONNECTIONS.read_text().splitlines()]
    return sum(line[2].endswith(f":{port:04X}") and line[3] == "02" for line in lines)


@pytest.mark.skipif(not CONNECTIONS.exists(), reason="connections are seen in /proc")
def test_a_server_far_away_is_found_however_many_are_named(monkeypatch):
    monkeypatch.setattr(addresses, "FIRST_CONTACT_S", 10)
    count = 20
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listening,
        socket.create_connection(listening.getsockname()),
        ThreadPoolExecutor(1) as thread,
    ):
        # The queue is full: who connects is answered when there is room, to a later packet.
        place = listening.getsockname()
        found = thread.submit(addresses.find_problems, [place] * count, LONG_S)
        wait_until(lambda: found.done() or count_connecting(place[1]) == count)
        listening.accept()[0].close()
        assert found.result() == []


@pytest.mark.skipif(not CONNECTIONS.exists(), reason="connections are seen in /proc")
def test_a_process_does_not_wait_for_a_server_that_it_need_not_reach(monkeypatch):
    monkeypatch.setattr(addresses, "FIRST_CONTACT_S", 10)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.create_connection(full.getsockname()),
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        assert addresses.find_problems([full.getsockname(), listening.getsockname()], LONG_S) == []
        left = [each for each in threading.enumerate() if each.name.startswith("indelible-probe")]
        assert left
        assert all(each.daemon for each in left)
        full.accept()[0].close()


@pytest.mark.parametrize(
    "url", ["unix://{}/redis.sock", "postgresql:///x?host={}"], ids=["redis", "postgresql"]
)
async def test_a_socket_that_is_not_there(refuse, url, tmp_path):
    error = await refuse(url.format(tmp_path), timeout_s=LONG_S)
    assert f"no server answers at the socket {tmp_path}" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.usefixtures("stuck_names")
async def test_a_name_that_is_not_resolved_in_time_is_an_error(refuse, monkeypatch, scheme):
    monkeypatch.setattr(addresses, "FIRST_CONTACT_S", 0.1)
    error = await refuse(f"{scheme}://u:s3cret@stuck.example/0", timeout_s=0.2)
    assert "stuck.example could not be resolved and reached in time" in str(error)
