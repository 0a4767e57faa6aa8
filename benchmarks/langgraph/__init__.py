"""Checkpointers of LangGraph side by side, on one chat."""
