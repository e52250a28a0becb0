"""The digests that questions are known by."""

import hashlib
from dataclasses import dataclass

from helmsman import __version__
from helmsman.service.planner.questions.catalogue import catalogue_digest


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes keys: equal ones for questions that say the same, of the same version of Helm, about the same records of
    models and machines; `state` is the digest of the latter two."""

    state: str

    @classmethod
    def here(cls) -> "Keys":
        """Return the keys of this version and its catalogue."""
        return cls(hashlib.sha256(f"{__version__} {catalogue_digest()}".encode()).hexdigest())

    def key(self, kind: str, question: bytes) -> str:
        """Return the digest of a question of a kind, best in its canonical form."""
        return hashlib.sha256(f"{self.state} {kind} ".encode() + question).hexdigest()
