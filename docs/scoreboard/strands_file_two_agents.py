"""Two processes go on with one session of Strands' FileSessionManager; messages are overwritten.

A message's number is one more than that of the last one which this process saw, and its file is
named for the number. A second process gives the same numbers.

Run it:   .venv-frameworks/strands/bin/python docs/scoreboard/strands_file_two_agents.py
Printed:  40 messages were acknowledged, 20 are there; each time
"""

import multiprocessing
import tempfile

from strands import Agent
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

EACH = 20


class Silent(Model):
    """No model is called here."""

    def update_config(self, **config): ...

    def get_config(self):
        return {}

    def structured_output(self, *arguments, **more): ...

    def stream(self, *arguments, **more): ...


def opened(folder):
    manager = FileSessionManager(session_id="ana", storage_dir=folder)
    return manager, Agent(model=Silent(), agent_id="helper", session_manager=manager)


def write(folder, name, go):
    manager, agent = opened(folder)
    go.wait()
    for number in range(EACH):
        message = {"role": "user", "content": [{"text": f"{name}{number}"}]}
        manager.append_message(message, agent)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    opened(folder)  # the session is there before two go on with it
    go = multiprocessing.Barrier(2)
    writers = [multiprocessing.Process(target=write, args=(folder, n, go)) for n in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not any(writer.exitcode for writer in writers)
    manager, _ = opened(folder)
    kept = manager.list_messages("ana", "helper")
    print(f"{2 * EACH} messages were acknowledged, {len(kept)} are there")
