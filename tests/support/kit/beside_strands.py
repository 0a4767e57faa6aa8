"""A session manager for the tests of the target `strands`; it runs where that is installed."""

from strands.session.file_session_manager import FileSessionManager

KEPT = 2


class Forgetful(FileSessionManager):
    def list_messages(self, *arguments, **options):
        return super().list_messages(*arguments, **options)[-KEPT:]


def forgetful(workspace):
    return Forgetful(session_id="kit", storage_dir=str(workspace))
