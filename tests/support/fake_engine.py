"""Interpreters that have an engine, as shell scripts: what `--engine-python` names, without an engine."""

from pathlib import Path

_SCRIPT = """#!/bin/sh
if [ "$1" = -c ]; then {version}; fi
if [ "$2" = --fit ]; then echo '{{"fit": {fit}}}'; exit 0; fi
echo "$2" >> {log}
{load}
case "$2" in *{mark}*) pace={marked};; *) pace={other};; esac
while read -r line; do
  case "$line" in
    *'"run"'*)
      printf '{{"token": 7, "at": 0.5}}\\n{{"token": 8, "at": 0.6}}\\n{{"token": 9, "at": 0.7}}\\n'
      echo '{{"done": true}}' ;;
    *) echo "{{\\"seconds\\": $pace, \\"done\\": true}}" ;;
  esac
done
"""
LOADED = """echo '{"loaded": true, "peak": 1048576}'"""
FAILING = "echo 'no such tensor: blk.0.x' >&2; exit 1"
WITH_PACKAGE = "echo 9.9; exit 0"
WITHOUT_PACKAGE = "exit 3"


def fake_python(
    folder: Path,
    mark: str = "nowhere",
    marked: float = 0.5,
    other: float = 0.5,
    *,
    load: str = LOADED,
    version: str = WITH_PACKAGE,
    fit: str = "true",
) -> Path:
    """Return an interpreter whose engine answers every run with three tokens, after 0.5, 0.6 and 0.7 s, and every test
    with `marked` seconds where its settings hold `mark`, else `other`; it appends its settings to `settings`, and says
    of its fit what `fit` is."""
    place = folder / "engine-python"
    log = folder / "settings"
    paces = {"mark": f"'{mark}'", "marked": marked, "other": other}
    place.write_text(_SCRIPT.format(version=version, log=log, load=load, fit=fit, **paces))
    place.chmod(0o755)
    return place
