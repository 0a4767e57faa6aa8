"""Two processes store runs of one session in Agno's JsonDb; some of them are gone.

All runs stand in one file. To store one, the whole file is read and written again; what another
process stored in between is overwritten.

Run it:   .venv-frameworks/agno/bin/python docs/scoreboard/agno_json_two_writers.py
Printed:  100 runs were stored without an error; 31 (35, 36, 36, 38) of them are gone
"""

import multiprocessing
import tempfile

from agno.db.base import SessionType
from agno.db.json import JsonDb
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session import AgentSession

EACH = 50


def write(folder, name, go, answers):
    database = JsonDb(db_path=folder)
    acknowledged = []
    go.wait()
    for number in range(EACH):
        said = [Message(role="user", content="and another thing")]
        run = RunOutput(run_id=f"{name}{number}", agent_id="helper", messages=said)
        try:
            database.upsert_run(run, session_id="ana")
        except ValueError:
            continue  # half a file was read, and nothing written
        acknowledged.append(run.run_id)
    answers.put(acknowledged)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    JsonDb(db_path=folder).upsert_session(AgentSession(session_id="ana", agent_id="helper"))
    go, answers = multiprocessing.Barrier(2), multiprocessing.Queue()
    writers = [multiprocessing.Process(target=write, args=(folder, n, go, answers)) for n in "ab"]
    for writer in writers:
        writer.start()
    acknowledged = {run for _ in writers for run in answers.get()}
    for writer in writers:
        writer.join()
    session = JsonDb(db_path=folder).get_session("ana", session_type=SessionType.AGENT)
    kept = {run.run_id for run in session.runs or []}
    print(f"{len(acknowledged)} runs were stored without an error;")
    print(f"{len(acknowledged - kept)} of them are gone")
