from enum import StrEnum


class RunStatus(StrEnum):
    completed = "COMPLETED"
