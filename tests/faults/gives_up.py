"""A store that is lost after its first error; by itself, for workers import it again and again."""

from memory_contract.adapter import Refused
from tests.support.disk_goldfish import WalFull


class GivesUp(WalFull):
    """Is of no use any more after its first error, and says so."""

    _ill = False

    def _alive(self, session):
        if self._ill:
            raise Refused("open me anew")
        try:
            return super()._alive(session)
        except Exception:
            self._ill = True
            raise
