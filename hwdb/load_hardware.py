"""Hardware by name, by file, or `this` machine as it was last profiled."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from helmsman.hwdb.compose import Parts, assemble
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.near_names import did_you_mean
from helmsman.schemas.read import parse_document, read_document
from helmsman.schemas.units import parse_bytes

SYSTEMS = Path(__file__).parent / "systems"
THIS = "this"


def load_hardware(spec: str, cache_dir: Path | None, tell: Callable[[str], None] = lambda _: None) -> Hardware:
    """Return the machine `spec` names: a system of the catalogue, a `helm.hardware/1` file, or `this` (newest profile
    in `cache_dir` that can be read; newer ones that cannot are told).

    Raises UsageError (unknown name), BadInputError (bad file), HardwareUnavailableError (no profile)."""
    if spec == THIS:
        return _latest_profile(cache_dir, tell)
    if spec.endswith(".json") or "/" in spec:
        return read_document(Hardware, Path(spec))
    names = system_names()
    if spec.lower() not in names:
        raise UsageError("unknown hardware", field="hardware", value=spec, remedy=did_you_mean(spec, [*names, THIS]))
    return read_system(SYSTEMS / f"{spec.lower()}.json")


def system_names() -> list[str]:
    """Return every system of the catalogue."""
    return sorted(path.stem for path in SYSTEMS.glob("*.json"))


def read_system(path: Path) -> Hardware:
    """Return the machine a system file describes: parts from the device tables, then what is known better of this
    machine."""
    content = json.loads(path.read_bytes())
    parts = {**content["parts"], "name": path.stem, "ram": parse_bytes(content["parts"]["ram"], "ram")}
    document = assemble(Parts(**parts)).to_dict()
    for table, key in (("memories", ("name",)), ("devices", ("name",)), ("links", ("source_memory", "target_memory"))):
        document[table] = _patched(document.get(table, []), content.get(table, []), key)
    document["tables"] = content.get("tables", [])
    sources = {**document["sources"], **content.get("sources", {})}
    used = _sources_used(document)
    document["sources"] = {name: source for name, source in sources.items() if name in used or name in _SHEETS}
    return parse_document(Hardware, json.dumps(document).encode(), str(path))


_SHEETS = frozenset({"cpu", "gpu"})


def _patched(rows: list[Any], patches: list[Any], key: tuple[str, ...]) -> list[Any]:
    """`rows` with the fields that `patches` give (null removes one); a patch for no row is a new row."""
    by_key = {tuple(row[part] for part in key): row for row in rows}
    for patch in patches:
        name = tuple(patch[part] for part in key)
        merged = {**by_key.get(name, {}), **patch}
        by_key[name] = {field: value for field, value in merged.items() if value is not None}
    return list(by_key.values())


def _sources_used(node: Any) -> set[str]:
    """Return every key of `sources` that a number of the document points to."""
    if isinstance(node, list):
        return set().union(*(_sources_used(child) for child in node))
    if not isinstance(node, dict):
        return set()
    here = {node["source"]} if isinstance(node.get("source"), str) else set()
    return here.union(*(_sources_used(child) for key, child in node.items() if key != "sources"))


def profiles(cache_dir: Path) -> Iterator[Hardware]:
    """Yield every profile that can be read, the newest first."""
    for path in _profiles(cache_dir):
        with suppress(BadInputError):
            yield read_document(Hardware, path)


def newest_profile(cache_dir: Path) -> tuple[Path, Hardware] | None:
    """Return the newest profile that can be read and its file, None where there is none."""
    for path in _profiles(cache_dir):
        with suppress(BadInputError):
            return path, read_document(Hardware, path)
    return None


def newest_ns(cache_dir: Path) -> int:
    """When the newest profile was written, in nanoseconds of the system's clock; 0 where there is none."""
    with suppress(FileNotFoundError):  # removed since it was listed
        return next((path.stat().st_mtime_ns for path in _profiles(cache_dir)), 0)
    return 0


def _profiles(cache_dir: Path | None) -> list[Path]:
    """Return the files of profiles, the newest first."""
    paths = list(cache_dir.glob("*.json")) if cache_dir is not None and cache_dir.is_dir() else []
    dated = [(path.stat().st_mtime_ns, path.name, path) for path in paths if path.is_file()]  # no link to nothing
    return [path for _, _, path in sorted(dated, reverse=True)]


def _latest_profile(cache_dir: Path | None, tell: Callable[[str], None]) -> Hardware:
    wrong: list[BadInputError] = []
    for path in _profiles(cache_dir):
        try:
            latest_profile = read_document(Hardware, path)
        except BadInputError as error:
            wrong.append(error)
        else:
            for fault in wrong:
                tell(f"passed over a newer profile: {fault}; remove it, or run helm-profile again")
            return latest_profile
    if not wrong:
        raise HardwareUnavailableError(
            "this machine has not been profiled",
            field="hardware",
            value=THIS,
            remedy="run helm-profile, or name a system with `hardware`",
        )
    raise wrong[0]
