"""Two processes append to one session of LangChain's FileChatMessageHistory; some of it is gone.

An append reads the whole file, and writes the whole file. What another process wrote in between is
overwritten; who reads while it is written meets half a file, and gets an error.

Run it:   .venv-frameworks/langchain/bin/python docs/scoreboard/langchain_file_two_writers.py
Printed:  200 appends were acknowledged, and 3217 raised; 46 of the acknowledged ones are gone;
          in four of five runs the file was unreadable in the end, and all of them were gone
"""

import json
import multiprocessing
import tempfile
from pathlib import Path

from langchain_community.chat_message_histories import FileChatMessageHistory

EACH = 100
ERRORS_MAX = 5_000


def write(path, name, go, answers):
    history = FileChatMessageHistory(path)
    acknowledged, errors = [], 0
    go.wait()
    while len(acknowledged) < EACH and errors < ERRORS_MAX:
        message = f"{name}{len(acknowledged)}"
        try:
            history.add_user_message(message)
        except json.JSONDecodeError:
            errors += 1  # the file could not be read, so nothing was written: again
        else:
            acknowledged.append(message)
    answers.put((acknowledged, errors))


if __name__ == "__main__":
    path = str(Path(tempfile.mkdtemp()) / "session.json")
    go, answers = multiprocessing.Barrier(2), multiprocessing.Queue()
    writers = [multiprocessing.Process(target=write, args=(path, n, go, answers)) for n in "ab"]
    for writer in writers:
        writer.start()
    found = [answers.get() for _ in writers]
    acknowledged = {message for messages, _ in found for message in messages}
    for writer in writers:
        writer.join()
    try:
        kept = {message.content for message in FileChatMessageHistory(path).messages}
    except json.JSONDecodeError:
        kept = set()
    print(f"{len(acknowledged)} appends were acknowledged, and {sum(e for _, e in found)} raised;")
    print(f"{len(acknowledged - kept)} of the acknowledged ones are gone")
