"""TLS to a PostgreSQL server, as its URL asks for it."""

import pytest

import indelible
from tests.support import postgres_server
from tests.support.tls_front import CERTIFICATE, TlsFront

# How a client asks for TLS, and the server's yes.
SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@pytest.fixture
def place():
    postgres_server.emptied_database()
    front = TlsFront(postgres_server.server().port, asked_for=SSL_REQUEST, answer=b"S")
    yield f"postgresql://postgres@localhost:{front.port}/postgres"
    front.close()


def test_a_certificate_that_is_known_is_trusted(place):
    with indelible.open(f"{place}?sslmode=verify-full&sslrootcert={CERTIFICATE}") as store:
        store.add_message("s", "user", "hi")
        (connection,) = store._backend.pool.idle
        assert connection.driver.pgconn.ssl_in_use


async def test_tls_for_async_code(place):
    url = f"{place}?sslmode=verify-full&sslrootcert={CERTIFICATE}"
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "hi")
        assert len(await store.get_history("s")) == 1


def test_a_certificate_that_nobody_knows_is_refused(place, tmp_path):
    # An empty list of those to trust, whatever this machine has.
    nobody = tmp_path / "nobody.pem"
    nobody.touch()
    with pytest.raises(indelible.UnavailableError) as caught:
        indelible.open(f"{place}?sslmode=verify-full&sslrootcert={nobody}", timeout_s=1)
    assert caught.value.landed == "no"


def test_a_server_without_tls_is_refused_where_it_is_demanded():
    url = postgres_server.server().url()
    with pytest.raises(indelible.UnavailableError) as caught:
        indelible.open(f"{url}?sslmode=require", timeout_s=1)
    assert "SSL" in str(caught.value)
