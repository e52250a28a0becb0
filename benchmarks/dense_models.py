"""The catalogue's models whose blocks are all alike, with attention and one dense network each."""

from functools import cache

from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.schemas.errors import BadInputError


@cache
def dense_names() -> tuple[str, ...]:
    """Return their names, sorted."""
    return tuple(name for name in catalogue_names() if _is_dense(name))


def _is_dense(name: str) -> bool:
    try:
        return load_model(name).dense.layers > 0
    except BadInputError:
        return False
