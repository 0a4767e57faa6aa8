#!/usr/bin/env python3
"""Stands in for the Claude Code CLI: the same protocol, and a model that counts what it is told."""

import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path


def send(frame):
    print(json.dumps(frame), flush=True)


def option(name):
    for number, argument in enumerate(sys.argv):
        if argument == name:
            return sys.argv[number + 1]
        if argument.startswith(name + "="):
            return argument.partition("=")[2]
    return None


def transcript(session_id):
    """Where the CLI keeps a conversation; the SDK put it there if it is resumed."""
    projects = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects"
    project = re.sub("[^a-zA-Z0-9]", "-", os.path.realpath(Path.cwd()))
    path = next(projects.glob(f"*/{session_id}.jsonl"), projects / project / f"{session_id}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def entry(session_id, parent, message):
    return {
        "type": message["role"],
        "uuid": str(uuid.uuid4()),
        "parentUuid": parent,
        "sessionId": session_id,
        "timestamp": datetime.now(UTC).isoformat(),
        "isSidechain": False,
        "message": message,
    }


def answer(session_id, asked):
    path = transcript(session_id)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    past = [json.loads(line) for line in lines]
    said = [each["message"]["content"] for each in past if each["type"] == "user"] + [asked]
    text = f"{len(said)} things so far; the first was {said[0]!r}"
    reply = {"role": "assistant", "model": "stub", "content": [{"type": "text", "text": text}]}
    question = entry(
        session_id, past[-1]["uuid"] if past else None, {"role": "user", "content": asked}
    )
    new = [question, entry(session_id, question["uuid"], reply)]
    path.write_text("".join(json.dumps(each) + "\n" for each in past + new), "utf-8")
    send({"type": "transcript_mirror", "filePath": str(path), "entries": new})
    send({"type": "assistant", "message": reply, "session_id": session_id})
    times = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "is_error": False}
    send(
        {"type": "result", "subtype": "success", "session_id": session_id, "result": text, **times}
    )


def main():
    if {"-v", "--version"} & set(sys.argv):
        print("99.0.0 (stub)")
        return
    session_id = option("--resume") or option("--session-id")
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            done = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            send({"type": "control_response", "response": done})
        elif frame["type"] == "user":
            answer(session_id, frame["message"]["content"])


if __name__ == "__main__":
    main()
