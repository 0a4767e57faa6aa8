"""A process is killed while it appends to FileChatMessageHistory; the whole session is gone.

The file is emptied before it is filled. A kill in between leaves it empty, with every message that
was ever acknowledged.

Run it:   .venv-frameworks/langchain/bin/python docs/scoreboard/langchain_file_killed.py
Printed:  kill 1 left 0 bytes of 1 or more messages, and reading the session raises JSONDecodeError
"""

import json
import multiprocessing
import random
import tempfile
import time
from pathlib import Path

from langchain_community.chat_message_histories import FileChatMessageHistory

KILLS_MAX = 300


def talk(path):
    history = FileChatMessageHistory(path)
    while True:
        history.add_user_message("and another thing")


if __name__ == "__main__":
    path = Path(tempfile.mkdtemp()) / "session.json"
    FileChatMessageHistory(str(path)).add_user_message("My name is Ana.")
    kept = 1
    for kill in range(1, KILLS_MAX + 1):
        talking = multiprocessing.Process(target=talk, args=(str(path),))
        talking.start()
        time.sleep(random.uniform(0.01, 0.05))
        talking.kill()
        talking.join()
        try:
            kept = len(FileChatMessageHistory(str(path)).messages)
        except json.JSONDecodeError:
            print(f"kill {kill} left {path.stat().st_size} bytes of {kept} or more messages,")
            print("and reading the session raises JSONDecodeError")
            break
    else:
        print(f"nothing was lost by {KILLS_MAX} kills")
