"""`helm-plan` as a user meets it: the papers' plans, output, and every kind of bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fewer_blocks import fewer_blocks

import helmsman
from helmsman.cli.plan import main
from helmsman.cli.sim import main as simulate
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.accept import accept
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document


def run(capsys, *argv):
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def planned(capsys, *argv):
    code, out, err = run(capsys, *argv, "--json")
    assert code == 0, err or out
    assert err == ""
    return json.loads(out)


def split(capsys, *argv):
    """The best layer split."""
    return planned(capsys, "--strategy", "layer-split", *argv)


def studied(**question):
    """The best layer split of the running example under options that commands do not have."""
    asked = {"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": "layer-split", **question}
    return json.loads(helmsman.plan(asked).plan.to_json())


@pytest.mark.parametrize(
    ("model", "hardware", "label"),
    [
        ("Qwen3-8B", "rtx4060-laptop", "cpu(21)->cuda(17)"),
        ("Qwen3-14B", "rtx3090-epyc7h12", "cpu(8)->cuda(34)"),
        ("Qwen3-4B", "rtx3090-epyc7h12", "cuda(38)"),
        ("Qwen3-8B", "rtx3090-epyc7h12", "cuda(38)"),
        ("Qwen3-4B", "l40s-epyc7413", "cuda(38)"),
        ("Qwen3-8B", "l40s-epyc7413", "cuda(38)"),
    ],
)
def test_published_plans(capsys, model, hardware, label):
    """HELM Table 6.5."""
    assert split(capsys, "--model", model, "--hw", hardware)["label"] == label


def test_the_running_example_without_corrections():
    """E-HELM-02: 205.5 ms from 45, 218 and 16 GB/s."""
    plan = studied(corrections=False)
    assert plan["predicted"]["decode"]["seconds"]["mid"] == pytest.approx(0.2055, rel=0.01)


def test_the_printed_formulas_give_the_running_example_too():
    plan = studied(corrections=False, options={"paper": True})
    assert plan["label"] == "cpu(21)->cuda(17)"
    assert plan["predicted"]["decode"]["seconds"]["mid"] == pytest.approx(0.2055, rel=0.02)
    assert {term["source"] for term in plan["predicted"]["decode"]["terms"]} == {"paper"}


def test_json_is_one_plan_and_the_same_every_time(capsys, tmp_path):
    question = ("--model", "opt-125m", "--hw", "rtx4060-laptop", "--vram-avail", "250MB")
    argv = (*question, "--json", "-o", tmp_path / "p.json")
    code, out, err = run(capsys, *argv)
    assert (code, err) == (0, "")
    plan = parse_document(Plan, out.encode(), "stdout")
    assert plan.predicted.ttft.seconds.mid > plan.predicted.decode.seconds.mid
    assert run(capsys, *argv)[1] == out == (tmp_path / "p.json").read_text()


def test_the_table_says_what_a_person_asks(capsys):
    question = ("--model", "Qwen3-8B", "--hw", "rtx4060-laptop", "--strategy", "layer-split")
    code, out, _ = run(capsys, *question, "-v")
    assert code == 0
    for word in ("cpu(21)->cuda(17)", "tokens/s", "TTFT", "bottleneck", "lower bound", "memory", "runner-up",
                 "does not fit", "more in vram would allow cpu(20)->cuda(18)", "attention on cuda"):  # fmt: skip
        assert word in out


def test_a_plan_is_a_model_and_quiet_is_quiet(capsys, tmp_path):
    path = tmp_path / "p.json"
    code, out, err = run(
        capsys, "--model", "Qwen3-4B", "--hw", "l40s-epyc7413", "--strategy", "layer-split", "-q", "-o", path
    )
    assert (code, out, err) == (0, "", "")
    assert split(capsys, "--model", path, "--hw", "rtx4060-laptop")["model"]["name"] == "Qwen3-4B"


def test_composed_machines_and_overrides(capsys):
    parts = ("--gpu", "RTX 4070", "--cpu", "ryzen 7 5800x", "--ram", "64GB", "--link", "pcie4x16")
    plan = split(capsys, "--model", "Qwen3-8B", *parts)
    more = split(capsys, "--model", "Qwen3-8B", *parts, "--vram-avail", "9GB")
    assert plan["label"].startswith("cpu(")
    assert more["hardware"]["memories"][1]["available"] == 9 * 10**9
    assert more["label"] != plan["label"]


def test_longest_context_is_the_last_that_fits(capsys):
    argv = ("--model", "Qwen3-8B", "--hw", "rtx3060-5600x")
    longest = split(capsys, *argv, "--max-context")["max_context"]
    assert split(capsys, *argv, "--context", longest)
    if longest < 40960:
        assert run(capsys, "--strategy", "layer-split", *argv, "--context", longest + 1)[0] == 3


def test_a_sliding_window_limits_the_longest_context(capsys):
    found = split(capsys, "--model", "Mistral-7B-v0.1", "--hw", "rtx4090-7950x", "--max-context")
    assert (found["max_context"], found["limited_by"]) == (4096, "model")


def test_the_printed_formulas_with_corrections_stay_near_the_measured_step():
    """HELM Table 6.5: 244.3 ms measured, 263.5 ms printed."""
    plan = studied(options={"paper": True})
    seconds = plan["predicted"]["decode"]["seconds"]
    assert 0.22 < seconds["mid"] < 0.29
    assert seconds["low"] < seconds["mid"] < seconds["high"]


def test_devices_that_a_layer_split_cannot_use_are_named(capsys):
    code, out, _ = run(capsys, "--model", "Llama-3.1-70B", "--hw", "h100x2-hgx", "--strategy", "layer-split")
    assert code == 0
    assert "not used     cuda1" in out


def test_a_second_gpu_takes_its_part_of_the_best_plan(capsys):
    code, out, _ = run(capsys, "--model", "Llama-3.1-70B", "--hw", "h100x2-hgx")
    assert code == 0
    assert "40 cuda, 40 cuda1" in out and "not used     cuda1" not in out


@pytest.mark.parametrize("machine", ["m4max-128gb", "epyc9554-cpu", "a100-optane", "rx7900xtx-7900"])
def test_other_kinds_of_machines_can_be_planned(capsys, machine):
    plan = planned(capsys, "--model", "Qwen3-4B", "--hw", machine)
    assert plan["predicted"]["decode"]["gap"] >= 0


def request_seconds(plan):
    return plan["predicted"]["ttft"]["seconds"]["mid"] + 127 * plan["predicted"]["decode"]["seconds"]["mid"]


def test_a_model_that_fits_stays_on_one_device_with_the_proof_of_the_search(capsys, tmp_path):
    small = ("--model", fewer_blocks(tmp_path, "opt-125m", 4), "--hw", "rtx4060-laptop")
    code, out, _ = run(capsys, *small)
    assert code == 0 and "proof        request" in out
    assert "lower bound" not in out, "the proof is the stronger bound"
    plan = planned(capsys, *small)
    proof, searched = plan["certificate"], planned(capsys, *small, "--strategy", "optimal")
    assert {rule["memory"] for rule in plan["residence"]} == {"vram"}
    assert plan["strategy"]["options"]["risk"] == "median"
    assert proof["lower_bound"] <= proof["seconds"] == pytest.approx(request_seconds(plan))
    assert proof["lower_bound"] == pytest.approx(searched["certificate"]["lower_bound"])


def test_a_simpler_plan_says_what_it_was_preferred_to(capsys, tmp_path):
    """Shared matrices are faster by their median, and less than a tenth by what is expected of a machine whose
    crossings nobody measured."""
    model, place = fewer_blocks(tmp_path, "Qwen3-4B", 10), tmp_path / "plan.json"
    question = ("--model", model, "--hw", "rtx4060-laptop", "--vram-avail", "850MB")
    code, out, _ = run(capsys, *question, "-o", place)
    exact = run(capsys, *question, "-v")[1]
    plan, searched = json.loads(place.read_text()), planned(capsys, *question, "--strategy", "optimal")
    faster = plan["passed_over"][0]
    assert (
        "|" in searched["label"]
        and faster["label"] == searched["label"]
        and faster["gain"]["low"] == 0.0 < faster["gain"]["mid"]
    )
    assert faster["seconds"] == pytest.approx(request_seconds(searched)) and faster["seconds"] < request_seconds(plan)
    assert code == 0 and "passed over  optimal: " in out
    assert f"passed over {faster['label']}: " in " ".join(exact.split())
    simple = [split(capsys, *question), planned(capsys, *question, "--strategy", "llama-cpp", "--same-software")]
    assert request_seconds(plan) <= 1.03 * min(map(request_seconds, simple))


def test_a_search_that_ends_early_has_a_plan_and_its_gap(capsys):
    asked = ("--model", "opt-125m", "--hw", "rtx4060-laptop", "--vram-avail", "250MB")
    early, late = (planned(capsys, *asked, "--effort", effort)["certificate"] for effort in (1, 500))
    assert early["lower_bound"] <= late["seconds"] * (1 + 1e-9) and late["lower_bound"] <= early["seconds"] * (1 + 1e-9)
    assert min(early["gap"], late["gap"]) >= 0.0
    assert run(capsys, *asked, "--effort", "0")[0] == 2


def test_limits_that_are_loosened_as_told_are_kept(capsys, tmp_path):
    question = ("--model", fewer_blocks(tmp_path, "opt-125m", 4), "--hw", "rtx4060-laptop")
    code, out, err = run(capsys, *question, "--slo", "ttft=0.01ms,tpot=0.01ms")
    assert code == 3 and out == "" and "the smallest change: " in err and err.count("\n") == 1
    assert planned(capsys, *question, "--slo", err.rpartition("the smallest change: ")[2].strip())["certificate"]


def test_too_many_batches_are_refused_at_once(capsys):
    code, _, err = run(capsys, "--model", "opt-125m", "--hw", "rtx4060-laptop", "--batches", "1000000")
    assert code == 3 and "does not fit" in err


@pytest.mark.parametrize("wrong", [{"lower_bound": 1e9}, {"gap": 17.0}])
def test_a_proof_that_proves_nothing_is_refused(capsys, tmp_path, wrong):
    plan = planned(capsys, "--model", fewer_blocks(tmp_path, "opt-125m", 2), "--hw", "rtx4060-laptop")
    plan["certificate"] |= wrong
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    assert simulate([str(path)]) == 5
    assert "certificate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [("ttft", "--slo"), ("ttft=0s", "not a time"), ("tpot=fast", "not a time"), ("tpot=1s,tpot=2s", "twice"),
     ("tpot=1ms", "the smallest change: tpot=")],
)  # fmt: skip
def test_limits_that_are_none_or_cannot_be(capsys, text, words):
    code, out, err = run(capsys, "--model", "opt-125m", "--hw", "rtx4060-laptop", "--slo", text)
    assert code in (2, 3) and out == "" and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("strategy", "modules"), [("layer-split", "numpy scipy pyarrow"), ("optimal", "scipy pyarrow matplotlib")]
)
def test_planning_stays_light(strategy, modules):
    """Bar 4: layer splits without numpy, nothing with the executor; under 150 MiB."""
    script = (
        "import pathlib, sys; from helmsman.cli.plan import main; "
        f"main(['--model', 'Qwen3-8B', '--hw', 'rtx4060-laptop', '-q', '--strategy', '{strategy}']); "
        f"heavy = {{*'{modules} torch networkx helmsman.executor'.split()}} & set(sys.modules); "
        "status = pathlib.Path('/proc/self/status').read_text().splitlines(); "
        "peak = next(line.split()[1] for line in status if line.startswith('VmHWM')); "
        "print(sorted(heavy), int(peak) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy, mebibytes = done.stdout.rsplit(" ", 1)
    assert heavy == "[]"
    assert int(mebibytes) <= 150


def test_offloaded_kv_frees_the_accelerator(capsys):
    argv = ("--model", "Qwen3-8B", "--hw", "rtx3090-epyc7h12", "--context", "40000", "--prompt-tokens", "30000")
    kept, away = split(capsys, *argv), split(capsys, *argv, "--kv-offload")
    at = {use["memory"]: use for use in away["predicted"]["memory"]}
    assert at["vram"]["kv"] == 0 < at["dram"]["kv"]
    assert (away["schedule"]["overlap"], away["schedule"]["prefetch"]) == ("next-layer", 1)
    assert away["predicted"]["decode"]["seconds"]["mid"] > kept["predicted"]["decode"]["seconds"]["mid"]


HW = ("--hw", "rtx4060-laptop")
MODEL = ("--model", "Qwen3-8B")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ((), 2, "--model"),
        (("--model", "Qwen3-9B", *HW), 2, "Qwen3-8B"),
        ((*MODEL, "--hw", "rtx4060-labtop"), 2, "rtx4060-laptop"),
        ((*MODEL, "--hw", "nothing/here.json"), 5, "nothing/here.json"),
        (MODEL, 2, "no machine is named"),
        ((*MODEL, *HW, "--gpu", "RTX 4090"), 2, "exclude each other"),
        ((*MODEL, "--gpu", "RTX 4090", "--cpu", "i9-9999Z", "--ram", "64GB"), 2, "i9"),
        ((*MODEL, "--cpu", "Ryzen 7 5800X", "--ram", "many"), 2, "--ram"),
        ((*MODEL, *HW, "--vram-avail", "9GB"), 2, "--vram-avail"),
        ((*MODEL, *HW, "--prompt-tokens", "0"), 2, "--prompt-tokens"),
        ((*MODEL, *HW, "--prompt-tokens", "x"), 2, "--prompt-tokens"),
        ((*MODEL, *HW, "--context", "100"), 2, "--context 256"),
        ((*MODEL, *HW, "--context", "50000"), 2, "40960"),
        ((*MODEL, *HW, "--batch", "-3"), 2, "--batch"),
        ((*MODEL, *HW, "--format", "q9"), 2, "--format"),
        (("--model", "Llama-3.1-70B", *HW), 3, "more in dram would do"),
        (("--model", "Mixtral-8x7B-v0.1", *HW), 5, "experts"),
        ((*MODEL, "--hw", "this"), 6, "helm-profile"),
        ((*MODEL, *HW, "-o", "/no/such/folder/p.json"), 2, "cannot be written"),
        ((*MODEL, *HW, "--strategy", "layer-split", "-o", "/dev/full"), 6, "no room"),
    ],
)
def test_bad_input_is_one_clear_line_with_its_exit_code(capsys, monkeypatch, tmp_path, argv, code, words):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, out, err = run(capsys, *argv)
    assert (found, out) == (code, "")
    assert words in err
    assert err.startswith("helm-plan: error: ")
    assert err.count("\n") == 1


def test_errors_are_json_under_json(capsys):
    code, out, err = run(capsys, "--model", "Llama-3.1-70B", *HW, "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (3, "infeasible") and "more in" in error["remedy"]
    assert err.startswith("helm-plan: error: ") and error["remedy"] in err and err.count("\n") == 1
    code, out, _ = run(capsys, *MODEL, *HW, "--json", "--wrong")
    assert (code, json.loads(out)["error"]["code"]) == (2, "usage")


def test_an_interrupted_write_leaves_nothing(capsys, tmp_path, monkeypatch):
    path = tmp_path / "p.json"
    path.write_text("old")

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helmsman.schemas.write.os.fsync", fails)
    code, _, err = run(capsys, *MODEL, *HW, "--strategy", "layer-split", "-o", path)
    assert (code, path.read_text(), list(tmp_path.iterdir())) == (6, "old", [path])
    assert "no room on the disk" in err


def test_without_a_home_known_machines_are_planned_for_and_profiles_need_a_place(capsys, monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert run(capsys, *MODEL, *HW, "--strategy", "layer-split")[0] == 0
    code, _, err = run(capsys, *MODEL, "--hw", "this")
    assert code == 2 and "no home folder" in err and "XDG_CACHE_HOME" in err


def test_this_is_the_latest_profile(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "helmsman").mkdir()
    for name, system in (("profile-1.json", "l40s-epyc7413"), ("profile-2.json", "rtx4060-laptop")):
        (tmp_path / "helmsman" / name).write_text(load_hardware(system, None).to_json())
    assert split(capsys, *MODEL, "--hw", "this")["label"] == "cpu(21)->cuda(17)"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -1),
        ("hidden_size", 10**12),
        ("num_hidden_layers", True),
        ("vocab_size", "NaN"),
        ("vocab_size", None),
    ],
)
def test_bad_configs_are_named(capsys, tmp_path, key, value):
    good = dict(
        model_type="llama", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        vocab_size=100, max_position_embeddings=512, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False,
    )  # fmt: skip
    path = tmp_path / "config.json"
    text = json.dumps({**good, key: value}).replace('"NaN"', "NaN")
    path.write_text(text if value is not None else json.dumps({k: v for k, v in good.items() if k != key}))
    code, _, err = run(capsys, "--model", path, *HW)
    assert code == 5
    assert "config.json" in err
    assert (key in err) or ("NaN" in err)


SPLIT = ("--model", "opt-6.7b", "--hw", "a4000-7950x", "--strategy", "op-split", "--batch", 4)


def test_verbose_names_the_parts_of_a_search(capsys, tmp_path):
    """PARK-50: balancing only where weights may come from storage; the parts are all there is."""
    model = fewer_blocks(tmp_path, "opt-30b", 5)
    model_and_machine = ("--model", model, "--hw", "a4000-7950x", "--vram-avail", "3GB", "--output-tokens", "2")
    question = (*model_and_machine, "--strategy", "op-split", "-v")
    for options, first in (((), "prices"), (("--nvme", "direct"), "balancing")):
        code, out, _ = run(capsys, *question, *options)
        (line,) = (line for line in out.splitlines() if line.startswith("search "))
        total, parts = line.split(", ", 1)[1].split(" s in all: ")
        seconds = {name: float(value) for name, value, _ in (part.split() for part in parts.split(", "))}
        assert (
            code == 0 and next(iter(seconds)) == first and [*seconds][-4:] == ["prices", "search", "finalists", "plan"]
        )
        assert sum(seconds.values()) == pytest.approx(float(total), abs=0.02)


def test_an_operation_is_divided_once(capsys):
    code, out, err = run(capsys, *SPLIT, "--chunks", "scores=8,wv=2,scores=4")
    assert (code, out) == (2, "")
    assert "--chunks: divides scores twice" in err


@pytest.mark.parametrize("text", ["scores=8,wv", "scores=8,", "=3", "scores", "0x4", "1e9"])
def test_divisions_that_are_none_are_refused(capsys, text):
    code, out, err = run(capsys, *SPLIT, "--chunks", text)
    assert (code, out) == (2, "")
    assert "--chunks" in err and "not a division of operations" in err


def test_everything_is_divided_as_far_as_it_can_be(capsys, tmp_path):
    """K and V of this model have two KV heads, of four panels of rows each; the FFN has 16 parts."""
    shape = {"layers": 1, "hidden": 128, "heads": 4, "head_dim": 64, "ffn": 256}
    (tmp_path / "model.json").write_text(load_model("Qwen2.5-0.5B").model_copy(update=shape).to_json())
    code, out, _ = run(
        capsys, *HW, "--model", tmp_path / "model.json", "--strategy", "op-split", "--chunks", "16", "--json"
    )
    assert code == 0 and json.loads(out)["strategy"]["options"]["chunks"] == "16"


@pytest.mark.parametrize(
    ("strategy", "options", "batch", "field"),
    [
        ("op-split", {"no_overlap": True}, 4, "paper"),
        ("op-split", {"pinning": "pin-on-transfer"}, 4, "paper"),
        ("layer-split", {}, 2, "batch"),
    ],
)
def test_the_printed_equations_know_neither_waiting_nor_batches(strategy, options, batch, field):
    asked = {"model": "opt-6.7b", "hardware": "a4000-7950x", "strategy": strategy, "batch": batch}
    with pytest.raises(UsageError) as refusal:
        helmsman.plan({**asked, "options": {**options, "paper": True}})
    assert refusal.value.field == field


@pytest.mark.parametrize("flag", ["--paper", "--no-corrections", "--l3-blend", "--kv-keep=0.5", "--reshape"])
def test_what_figures_of_papers_need_has_no_flag(capsys, flag):
    code, _, err = run(capsys, *SPLIT, flag)
    assert code == 2 and flag.partition("=")[0] in err


def test_one_file_is_written_once(capsys, tmp_path):
    place = tmp_path / "x.png"
    code, _, err = run(capsys, *SPLIT, "-o", place, "--plot", place)
    assert code == 2 and "--plot: is written by -o too" in err
    assert not place.exists()


def test_direct_storage_needs_a_link(capsys, tmp_path):
    record = load_hardware("a4000-7950x", None)
    links = tuple(
        link for link in record.links if not (link.source_memory.startswith("nvme") and link.target_memory == "vram")
    )
    path = tmp_path / "hw.json"
    path.write_text(record.model_copy(update={"links": links}).to_json())
    argv = ("--model", "opt-6.7b", "--hw", path, "--strategy", "op-split", "--batch", 4, "--nvme")
    code, _, err = run(capsys, *argv, "direct")
    assert code == 2 and "no link from nvme0 to vram" in err and "--nvme bounce" in err


@pytest.mark.parametrize("flag", ["-o", "--plot", "--write-table"])
def test_places_are_checked_before_anything_is_written(capsys, tmp_path, flag):
    places = {"-o": tmp_path / "p.json", "--plot": tmp_path / "p.png", "--write-table": tmp_path / "t.json"}
    places[flag] = tmp_path / "nowhere" / places[flag].name
    code, out, err = run(capsys, *SPLIT, *(word for pair in places.items() for word in pair))
    assert (code, out) == (2, "")
    assert f"{places[flag]}: cannot be written" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["opt-6.7b", "Qwen3-8B"])
@pytest.mark.parametrize(
    "options",
    [
        ("--strategy", "layer-split"),
        ("--strategy", "layer-split", "--kv-offload"),
        ("--strategy", "op-split", "--compress", "all"),
        ("--strategy", "op-split", "--no-overlap", "--pinning", "pin-on-transfer"),
        ("--strategy", "op-split", "--fused-attention", "--no-cpu-offload"),
        ("--strategy", "flexgen", "--compress", "all"),
        ("--strategy", "flexgen", "--cpu-compute", "--batches", 2),
    ],
)
def test_plans_of_every_strategy_can_be_given_back(capsys, tmp_path, model, options):
    path, vram = fewer_blocks(tmp_path, model, 3), ("--vram-avail", "2GB")
    plan = planned(capsys, "--model", path, "--hw", "a4000-7950x", *vram, *options)
    accept(parse_document(Plan, json.dumps(plan).encode(), "plan.json"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A question about four blocks."""
    model = fewer_blocks(tmp_path_factory.mktemp("small"), "opt-125m", 4)
    return ("--model", model, "--hw", "a4000-7950x", "--strategy", "op-split", "--output-tokens", 4)


@pytest.fixture(scope="module")
def small_plan(small, tmp_path_factory):
    """Its answer, as it is written."""
    place = tmp_path_factory.mktemp("small") / "plan.json"
    assert main([*map(str, small), "-q", "-o", str(place)]) == 0
    return place.read_text()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("nvme", "direct"),
        ("nvme", "bounce"),
        ("pinning", "pageable"),
        ("pinning", "pin-on-transfer"),
        ("chunks", "2"),
        ("chunks", "scores=3,wv=2"),
    ],
)
def test_ablations_are_recorded_and_their_plans_replayed(small, capsys, tmp_path, option, value):
    code, out, err = run(capsys, *small, f"--{option}", value, "--json", "-o", tmp_path / "plan.json")
    assert (code, err) == (0, "")
    assert json.loads(out)["strategy"]["options"][option] == value
    assert simulate([str(tmp_path / "plan.json"), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["tpot_s"] > 0


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ("scores=13", "scores has 12 KV heads"),
        ("q=49", "768 rows, divided by 16"),
        ("q=0", "use 1 to 48"),
    ],
)
def test_operations_are_divided_into_no_more_than_they_have(small, capsys, chunks, words):
    code, out, err = run(capsys, *small, "--chunks", chunks)
    assert (code, out) == (2, "")
    assert "--chunks: " in err and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("rules", "op", "axis", "stop", "words"),
    [
        ("compute", "scores", "heads", 13, "select.part.stop: scores has 12 heads (got 13)"),
        ("compute", "up", "rows", 3073, "select.part.stop: up has 3072 rows (got 3073)"),
        ("compute", "up", "heads", 4, "select.part.axis: up is divided by rows (got 'heads')"),
        ("residence", "q.weight", "rows", 769, "select.part.stop: q.weight has 768 rows (got 769)"),
        ("kv", "keys", "heads", 13, "select.part.stop: keys has 12 heads (got 13)"),
    ],
)
def test_parts_beyond_what_there_is_name_their_rule(small_plan, capsys, tmp_path, rules, op, axis, stop, words):
    """The rule is put before those of a plan as it was written: third, so that its number tells."""
    content = json.loads(small_plan)
    wrong = {**content[rules][-1], "select": {"names": op, "part": {"axis": axis, "start": 0, "stop": stop}}}
    others = [{**wrong, "select": {"names": op, "layers": {"start": k, "stop": k + 1}}} for k in (2, 3)]
    (tmp_path / "plan.json").write_text(json.dumps({**content, rules: [*others, wrong, *content[rules]]}))
    assert simulate([str(tmp_path / "plan.json")]) == 5
    captured = capsys.readouterr()
    assert f"plan.json: {rules}.2.{words}" in captured.err
    assert captured.out == "" and captured.err.count("\n") == 1


def test_the_title_names_batches_and_every_format(small, capsys, tmp_path):
    streamed = (*small, "--no-cpu-offload", "--batches", 2, "--batch", 25)
    code, _, _ = run(capsys, *streamed, "--compress", "all", "--json", "-o", tmp_path / "plan.json")
    assert code == 0
    assert simulate([str(tmp_path / "plan.json")]) == 0
    assert "batch 2 x 25" in capsys.readouterr().out
    title = run(capsys, *streamed, "--compress", "all")[1].splitlines()[0]
    assert "batch 2 x 25, context 132, " in title
    assert "f16 and q4 weights" in title or "q4 and f16 weights" in title
    assert title.endswith(", q4 KV")
    assert run(capsys, *streamed)[1].splitlines()[0].endswith(", f16 weights, f16 KV")


def test_unused_devices_are_named_whatever_the_strategy(capsys):
    code, out, _ = run(capsys, "--model", "opt-125m", "--hw", "h100x2-hgx", "--strategy", "op-split")
    assert code == 0
    assert "not used     cuda1: plans use one accelerator" in out


def test_completion_scripts(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--completion", "bash"])
    assert ended.value.code == 0
    assert "--kv-offload" in capsys.readouterr().out
