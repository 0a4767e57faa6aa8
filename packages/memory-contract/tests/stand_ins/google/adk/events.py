import time
import uuid
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Event:
    author: str
    content: Any = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    timestamp: float = field(default_factory=time.time)
