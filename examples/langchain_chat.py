"""A chat on LangChain: stop it at any moment, start it again, and it goes on where it was."""

import sys

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import indelible
from indelible.adapters.langchain import IndelibleChatMessageHistory


def model(messages):
    """A stub: it says how much it was told."""
    said = [message.content for message in messages if isinstance(message, HumanMessage)]
    return AIMessage(f"{len(said)} things so far; the first was {said[0]!r}")


def main():
    with indelible.open(sys.argv[1]) as store:

        def history_of(session_id):
            return IndelibleChatMessageHistory(session_id, store)

        chat = RunnableWithMessageHistory(RunnableLambda(model), history_of)
        before = [each for each in history_of("ana").messages if isinstance(each, HumanMessage)]
        print(f"You have said {len(before)} things before.", flush=True)
        for line in sys.stdin:
            asked = [HumanMessage(line.strip())]
            answer = chat.invoke(asked, {"configurable": {"session_id": "ana"}})
            print(answer.content, flush=True)


if __name__ == "__main__":
    main()
