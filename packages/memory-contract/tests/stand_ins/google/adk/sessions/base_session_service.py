from dataclasses import dataclass


@dataclass
class GetSessionConfig:
    num_recent_events: int | None = None
