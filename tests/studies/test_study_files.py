"""Studies as people write them: files, options of the command, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from helmsman.schemas.errors import BadInputError, HelmError, UsageError
from helmsman.schemas.plan_question import ComposedMachine
from helmsman.studies.answering.run import MOST_POINTS, counted
from helmsman.studies.questions.flags import FLAGS, overridden
from helmsman.studies.questions.named_parts import machine_of
from helmsman.studies.questions.points import grid_of
from helmsman.studies.questions.read_study import content_of, study_of

SMALL: dict[str, Any] = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"]}


def written(tmp_path: Path, text: str, name: str = "study.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_in_either_language_and_options_say_the_same(tmp_path: Path) -> None:
    yaml = written(tmp_path, "models: Qwen3-0.6B\nmachines: [rtx4060-laptop]\nformats: Q4_K_M\nbatches: 1..8\n")
    json = written(
        tmp_path,
        '{"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "formats": ["q4_k_m"], "batches": ["1..8"]}',
        "study.json",
    )
    given = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "formats": ["Q4_K_M"], "batches": ["1..8"]}
    studies = [study_of(content_of(yaml)), study_of(content_of(json)), study_of(overridden({}, given))]
    assert studies[0] == studies[1] == studies[2]
    assert grid_of(studies[0]).batches == (1, 2, 4, 8)


def test_machines_may_be_parts_with_sizes_for_people() -> None:
    parts = ComposedMachine(cpu="Ryzen 7 5800X", gpu="RTX 4070", ram=64 * 2**30)
    listed = ["gpu=RTX 4070,cpu=Ryzen 7 5800X,ram=64GB", {"gpu": "RTX 4070", "cpu": "Ryzen 7 5800X", "ram": "64GB"}]
    assert study_of({**SMALL, "machines": listed}).machines == (parts, parts)
    joined = ComposedMachine(cpu="Ryzen 7 5800X", gpu="RTX 3090, RTX 3090", ram=64 * 2**30, peer=56e9)
    text = "gpu=RTX 3090, RTX 3090,cpu=Ryzen 7 5800X,ram=64GB,peer=56GB/s"
    assert study_of(
        {**SMALL, "machines": [text, {**joined.model_dump(exclude_none=True), "peer": "56GB/s"}]}
    ).machines == (
        joined,
        joined,
    )
    chip = ComposedMachine(gpu="GB10", ram=128 * 2**30)
    assert study_of({**SMALL, "machines": ["gpu=GB10,ram=128GB", "ram=128GB, gpu=GB10"]}).machines == (chip, chip)


def test_a_part_that_does_not_fit_is_named() -> None:
    for text, told in (("gpu=RTX 3090,peer=56GB/s", "peer: joins several"), ("gpu=RTX 9999", "gpu: no GPU")):
        with pytest.raises(UsageError, match=told) as caught:
            machine_of(study_of({**SMALL, "machines": f"cpu=5800X,ram=64GB,{text}"}).machines[0])
        assert caught.value.field == "machines"


def test_options_replace_what_a_file_says_of_one_part() -> None:
    content = {**SMALL, "slo": "ttft=2s", "serving": {"requests": "synthetic:n=9,rate=1"}, "prices": {"energy": 0.3}}
    changed = overridden(content, {"serving_policies": ["neo"], "prices_machines": ["rtx4060-laptop=900"]})
    study = study_of(changed)
    assert study.serving is not None and study.serving.policies == ("neo",)
    assert study.serving.requests == ("synthetic:n=9,rate=1",)
    [prices] = study.prices
    assert prices.machines == {"rtx4060-laptop": 900.0} and prices.energy == 0.3


def test_every_option_is_of_a_field() -> None:
    from helmsman.schemas.study import Study, StudyPrices, StudyServing

    parts = {"serving": StudyServing, "prices": StudyPrices}
    for flag in FLAGS:
        fields = Study.model_fields if len(flag.path) == 1 else parts[flag.path[0]].model_fields
        assert flag.path[-1] in fields


@pytest.mark.parametrize(
    ("text", "field", "told"),
    [
        ("models: [Qwen3-0.6B]\nmachines: []\n", "machines", "at least 1"),
        ("models: [Qwen3-0.6B]\nmachines: [x]\ncolour: red\n", "colour", "remove the field"),
        ("models: [Qwen3-0.6B]\nmachines: [x]\nprices: {energy: .nan}\n", "prices.0.energy", "finite"),
        ("models: [Qwen3-0.6B]\nmachines: [x]\nprices: {energy: -1}\n", "prices.0.energy", "at least"),
        ("models: [Qwen3-0.6B]\nmachines: [{cpu: x, ram: 64 turtles}]\n", "machines.0.ram", "unit"),
        ("models: [Qwen3-0.6B]\nmachines: [{cpu: x, ram: 64GB, peer: fast}]\n", "machines.0.peer", "2GB/s"),
        ("models: [Qwen3-0.6B]\nmachines: [{cpu: x, ram: 64GB, peer: [1]}]\n", "machines.0.peer", "number"),
        (
            "models: [Qwen3-0.6B]\nmachines: [x, 'cpu=x,ram=64GB,bogus=3']\n",
            "machines.1.bogus",
            "use cpu, ram, gpu, link",
        ),
        ("models: [Qwen3-0.6B]\nmachines: ['cpu=x,gpu=y']\n", "machines.0.ram", "add the field"),
        ("models: [Qwen3-0.6B]\nmachines: [5]\n", "machines.0", "neither a name nor parts"),
        ("models: [Qwen3-0.6B]\nmodels: [Qwen3-8B]\nmachines: [x]\n", None, "duplicate key 'models'"),
        ("models: &a [Qwen3-0.6B]\nmachines: *a\n", None, "anchors"),
        ("models: [Qwen3-0.6B\n", None, "not valid YAML"),
        ("models: {1: 2}\nmachines: [x]\n", "models", ""),
        ("- Qwen3-0.6B\n", None, "not a study"),
        ("", None, "not a study"),
        ("{" * 100_000, None, "not valid YAML"),
        ("models: !!python/object:os.system {}\n", None, "not valid YAML"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(tmp_path: Path, text: str, field: str | None, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInputError) as caught:
        study_of(content_of(path), str(path))
    assert caught.value.file == str(path) and caught.value.exit_code == 5
    assert caught.value.field is None if field is None else (caught.value.field or "").startswith(field)
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"strategies": ["fastest"]}, "strategies"),
        ({"slo": "ttft=soon"}, "slo"),
        ({"serving": {"requests": "synthetic:n=9,rate=1"}}, "slo"),
        ({"slo": "ttft=2s", "serving": {"requests": "synthetic:n=9,rate=1", "policies": ["fifo"]}}, "serving.policies"),
        ({"changes": ["vram=8..24parsecs"]}, "changes"),
        ({"changes": ["bigger"]}, "changes"),
        ({"batches": ["1..1000000000/1"]}, "batches"),
        ({"prompt_tokens": ["4..2"]}, "prompt_tokens"),
        ({"prompt_tokens": ["1..10000/1"], "output_tokens": ["1..10000/1"], "batches": ["1..10000/1"]}, "points"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused_before_anything_is_answered(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(HelmError) as caught:
        counted(study_of({**SMALL, **changes}))
    assert caught.value.field == field and isinstance(caught.value, UsageError)


def test_a_study_of_a_thousand_billion_questions_is_counted_without_making_them() -> None:
    huge = {"prompt_tokens": ["1..10000/1"], "output_tokens": ["1..10000/1"], "batches": ["1..10000/1"]}
    grid = grid_of(study_of({**SMALL, **huge}))
    assert len(grid) == 10**12 > MOST_POINTS


def test_questions_come_in_order_and_are_as_many_as_were_counted() -> None:
    study = study_of({**SMALL, "changes": ["as it is", "vram=8..16GB/4GB,link=pcie4x8"], "batches": ["1..4", 4, 6]})
    points = list(grid_of(study).points())
    assert len(points) == len(grid_of(study)) == 4 * 4 and len(set(points)) == len(points)
    assert [point.batch for point in points[:4]] == [1, 2, 4, 6]
    assert list(dict.fromkeys(point.change for point in points))[1:] == [
        f"vram={size}GB,link=pcie4x8" for size in (8, 12, 16)
    ]


def test_factors_and_rates_have_ranges_too() -> None:
    study = study_of({**SMALL, "changes": ["dram_bw=x1..2/0.5", "link=8..16GB/s"]})
    assert grid_of(study).changes[1:] == ("dram_bw=x1", "dram_bw=x1.5", "dram_bw=x2", "link=8GB/s", "link=16GB/s")


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        ("vram=8..16gb/8GB", ("vram=8GB", "vram=16GB")),
        ("vram=512GB..1TB/512GB", ("vram=512GB", "vram=1TB")),
        ("vram=1GB..2GB/512MB", ("vram=1GB", "vram=1536MB", "vram=2GB")),
        ("vram = 8GiB .. 16GiB", ("vram=8GiB", "vram=16GiB")),
        ("vram_bw=200..400GB/s/200GB/s", ("vram_bw=200GB/s", "vram_bw=400GB/s")),
    ],
)
def test_values_of_ranges_are_written_as_prices_name_them(change: str, meant: tuple[str, ...]) -> None:
    assert grid_of(study_of({**SMALL, "changes": change})).changes == ("as it is", *meant)


def test_a_wrong_range_is_told_as_it_was_written() -> None:
    with pytest.raises(UsageError) as caught:
        counted(study_of({**SMALL, "changes": "vram=8..24GB/0GB"}))
    assert caught.value.value == "vram=8..24GB/0GB"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"prices": {"machines": {"rtx4060laptop": 900}}}, "prices.machines"),
        ({"prices": {"watts": {"rtx3090-5950x": 300}}}, "prices.watts"),
        ({"prices": {"changes": {"vram=12GB": 300}}}, "prices.changes"),
        ({"slo": "ttft=2s", "serving": {"requests": "synthetic:bogus"}}, "serving.requests"),
        ({"slo": "ttft=2s", "serving": {"requests": "synthetic:n=9,rate=1", "think": "soon"}}, "serving.think"),
        ({"slo": "ttft=2s", "serving": {"requests": "synthetic:n=9,rate=1", "arrivals": "late"}}, "serving.arrivals"),
    ],
)
def test_prices_of_nothing_and_requests_of_nobody_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        counted(study_of({**SMALL, **changes}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"options": {"llama-cpp": {"ngl": 3}}}, "options"),
        ({"options": {"layer-split": {"ngl": 3}}}, "ngl"),
        ({"options": {"layer-split": {"kv_offload": [True, "often"]}}}, "kv_offload"),
        ({"slo": ["ttft=2s", "soon"]}, "slo"),
        ({"prices": [{"energy": 0.3}, {"energy": 0.4}]}, "prices"),
        ({"slo": "ttft=2s", "serving": {"requests": "synthetic:n=9,rate=1", "rate": "4..2"}}, "serving.rate"),
        ({"slo": "ttft=2s", "serving": {"requests": "synthetic:n=9,rate=1", "users": 4}}, "serving.users"),
    ],
)
def test_circumstances_and_options_that_there_are_not_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        counted(study_of({**SMALL, "strategies": "layer-split", **changes}))
    assert caught.value.field == field


def test_every_combination_of_circumstances_and_options_is_a_question() -> None:
    study = study_of(
        {
            **SMALL,
            "strategies": ["layer-split", "llama-cpp"],
            "options": {"llama-cpp": {"ngl": [3, 9], "no_op_offload": True}},
            "slo": ["ttft=1s", "ttft=2s"],
            "serving": {
                "requests": ["synthetic:n=9,rate=1", "synthetic:n=8,rate=1"],
                "rate": ["1..4", 3],
                "think": ["1s", "5s"],
            },
            "prices": [{"name": "new"}, {"name": "used"}],
        }
    )
    grid = grid_of(study)
    points = list(grid.points())
    assert len(points) == len(grid) == 3 * 2 * (2 * 4 * 2) * 2 and len(set(points)) == len(points)
    assert grid.scenarios == len(points) // 3
    methods = dict.fromkeys((point.method.strategy, point.method.options) for point in points)
    assert list(methods) == [
        ("layer-split", ()),
        *(("llama-cpp", (("ngl", count), ("no_op_offload", True))) for count in (3, 9)),
    ]


def test_options_of_strategies_are_said_on_the_command_line_too() -> None:
    given = {"options": ["llama-cpp.ngl=3", "llama-cpp.ngl=9", "layer-split.kv_offload=true"]}
    options = overridden(SMALL, given)["options"]
    assert options == {"llama-cpp": {"ngl": [3, 9]}, "layer-split": {"kv_offload": [True]}}
    with pytest.raises(UsageError, match="not an option with a value"):
        overridden(SMALL, {"options": ["ngl=3"]})


def test_one_of_several_prices_is_not_changed_by_an_option() -> None:
    with pytest.raises(UsageError, match="the study has several prices"):
        overridden({**SMALL, "prices": [{"name": "a"}, {"name": "b"}]}, {"prices_energy": 0.3})


def test_an_entry_stands_for_a_list_of_one_in_what_is_served_as_well() -> None:
    study = study_of({"models": "Qwen3-0.6B", "machines": "x", "serving": {"requests": "a.csv", "policies": "neo"}})
    assert study.models == ("Qwen3-0.6B",) and study.serving is not None and study.serving.policies == ("neo",)


def test_many_keys_are_read_in_time_that_grows_with_them(tmp_path: Path) -> None:
    prices = "".join(f"  m{number}: {number}\n" for number in range(5_000))
    path = written(tmp_path, f"models: a\nmachines: b\nprices:\n machines:\n{prices}")
    assert len(content_of(path)["prices"]["machines"]) == 5_000
