"""How many files, and so connections, this process may have open."""

import resource


def allow_connections() -> None:
    """As many as the system lets a process have without asking: often 1,024 where far more are allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
