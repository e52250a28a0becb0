"""Quotas of clients: requests a second, and plans a day."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.options import ClientLimits

_MOST_CLIENTS = 10_000
"""Clients that are remembered; of more, those that asked longest ago are forgotten."""
_DAY_S = 86400.0


@dataclass
class _Account:
    """Holds the rest of a client's quota: `tokens` of requests at the moment `at`, `points` of the day that began at
    `day`."""

    tokens: float
    at: float
    points: int = 0
    day: float = 0.0


@dataclass(frozen=True, slots=True)
class Charge:
    """Points that an account was charged, on the day that began at `day`."""

    account: _Account
    count: int
    day: float

    def give_back(self) -> None:
        """Let them not have been charged: nothing came of what they were for, by no fault of the client."""
        if self.account.day == self.day:
            self.account.points -= self.count


class Quotas:
    """Counts what clients ask. `clock`: seconds, of which only differences count."""

    def __init__(self, limits: ClientLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def request(self, client: str) -> None:
        """Take a request of a client. Raises RefusedError (429) where it asks too often."""
        account, now = self._account(client), self._clock()
        account.tokens = min(self._limits.burst, account.tokens + (now - account.at) * self._limits.rate)
        account.at = now
        if account.tokens < 1.0:
            message = f"more than {self._limits.rate:g} requests a second"
            raise RefusedError(429, "rate", message, retry_s=max(1, ceil((1.0 - account.tokens) / self._limits.rate)))
        account.tokens -= 1.0

    def points(self, client: str, count: int) -> Charge:
        """Take plans that have to be made for a client. Raises RefusedError (429) beyond its day's."""
        account, now = self._account(client), self._clock()
        if now - account.day >= _DAY_S:
            account.points, account.day = 0, now
        if account.points + count > self._limits.points:
            left = self._limits.points - account.points
            message = f"{count} plans are asked for, and {left} of {self._limits.points} a day are left"
            raise RefusedError(429, "points", message, retry_s=max(1, ceil(account.day + _DAY_S - now)))
        account.points += count
        return Charge(account, count, account.day)

    def _account(self, client: str) -> _Account:
        account = self._accounts.get(client)
        if account is None:
            now = self._clock()
            account = self._accounts[client] = _Account(self._limits.burst, now, day=now)
            if len(self._accounts) > _MOST_CLIENTS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(client)
        return account
