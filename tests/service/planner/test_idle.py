"""Connections that idle are closed, and those that are used are not."""

from helmsman.service.http.idle_connections import IdleConnections


def test_who_asks_now_and_then_does_not_idle() -> None:
    idle = IdleConnections[str](10.0)
    for moment in range(0, 100, 5):
        idle.busy("used")
        overdue = idle.overdue({"used", "silent"}, lambda connection: False, float(moment))
        assert overdue == (["silent"] if moment > 10 else [])


def test_who_is_answered_does_not_idle() -> None:
    idle = IdleConnections[str](10.0)
    assert not idle.overdue({"one"}, lambda connection: False, 0.0)
    assert not idle.overdue({"one"}, lambda connection: True, 50.0)
    assert not idle.overdue({"one"}, lambda connection: False, 51.0)
    assert idle.overdue({"one"}, lambda connection: False, 62.0) == ["one"]
