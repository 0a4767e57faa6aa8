"""A server that has just been started, and still reads its file."""

import threading
import time

import redis

import indelible
from memory_contract.faults.servers.valkey import ValkeyServer

WRITES = 20_000
# For each of them: so that a start takes long enough to look at it.
DELAY_US = 200
PATIENCE_S = 60


def until_loading(server):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with server.client() as client:
                if client.info("persistence")["loading"]:
                    return
        except redis.exceptions.ConnectionError:
            # It does not listen yet, or does not listen to anybody right now.
            pass
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_that_still_reads_its_file_gives_what_it_will_give(tmp_path):
    server = ValkeyServer(tmp_path, {"key-load-delay": str(DELAY_US)})
    server.start()
    try:
        with server.client() as client, client.pipeline(transaction=False) as pipe:
            for number in range(WRITES):
                pipe.set(f"other{number}", "x")
            pipe.execute()
        server.kill()
        starting = threading.Thread(target=server.start)
        starting.start()
        until_loading(server)
        # Its durability is not in doubt, only late: no warning, and no refusal.
        with indelible.open(server.url, durability="power", timeout_s=PATIENCE_S) as store:
            assert store.claims().durability == "power"
            store.add_message("s", "user", "hello")
        starting.join()
    finally:
        server.kill()
