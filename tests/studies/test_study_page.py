"""The page about studies: its example is a study, and it names every change and field."""

import re
from pathlib import Path

from helmsman.hwdb.edits import EDITS
from helmsman.schemas.study import Study
from helmsman.studies.answering.run import counted
from helmsman.studies.questions.read_study import content_of, study_of

PAGE = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()


def test_the_example_is_a_study(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "study.yaml"
    path.write_text(example)
    assert len(counted(study_of(content_of(path)))) == 2 * 3 * 5 * 2 * 2 * 3


def test_every_change_and_field_is_told() -> None:
    assert all(f"`{name}=" in PAGE for name in EDITS)
    fields = set(Study.model_fields) - {"schema_id", "name"}
    assert all(f"`{field}`" in PAGE for field in fields)
