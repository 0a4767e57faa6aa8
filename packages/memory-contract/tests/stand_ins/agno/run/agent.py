from dataclasses import dataclass
from typing import Any


@dataclass
class RunOutput:
    run_id: str
    agent_id: str
    session_id: str
    messages: list[Any]
    status: Any
