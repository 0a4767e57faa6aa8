from dataclasses import dataclass
from typing import Any


@dataclass
class AgentSession:
    session_id: str
    agent_id: str | None = None
    session_data: dict[str, Any] | None = None
    runs: list[Any] | None = None
    created_at: int | None = None

    def upsert_run(self, run):
        self.runs = [*(each for each in self.runs or () if each.run_id != run.run_id), run]

    def get_messages(self):
        return [message for run in self.runs or () for message in run.messages]
