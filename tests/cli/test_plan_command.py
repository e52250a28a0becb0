"""`helm-plan` as a user meets it: the papers' plans, output, and every kind of bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fewer_blocks import fewer_blocks
from plan_command import planned, run

import helmsman
from helmsman.cli.plan import main
from helmsman.cli.sim import main as simulate
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.longest_context import LongestContext
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document


def split(capsys, *argv):
    """The best layer split."""
    return planned(capsys, "--strategy", "layer-split", *argv)


def studied(**question):
    """The best layer split of the running example under options that commands do not have."""
    example = {"model": "Qwen3-8B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}
    return json.loads(helmsman.plan({**example, **question}).plan.to_json())


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
                 "does not fit", "more on the GPU would allow cpu(20)->cuda(18)", "attention on cuda"):  # fmt: skip
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


def test_positions_and_not_a_window_of_attention_limit_the_longest_context(capsys):
    found = split(capsys, "--model", "Mistral-7B-v0.1", "--hw", "rtx4090-7950x", "--max-context")
    assert parse_document(LongestContext, json.dumps(found).encode(), "out").max_context == 32768
    assert (found["max_context"], found["limited_by"]) == (32768, "model")


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
    question = ("--model", model, "--hw", "rtx4060-laptop", "--vram-avail", "890MB")
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
        (("--model", "Llama-3.1-70B", *HW), 3, "more in RAM would do"),
        (("--model", "granite-4.0-h-small", *HW), 5, "layer_types"),
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


def test_this_without_a_profile_is_the_machine_as_it_is_found(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    argv = ("--model", "Qwen3-0.6B", "--hw", "this", "--strategy", "cpu-only", "--format", "q4_k")
    code, _, err = run(capsys, *argv)
    assert code == 0 and "not profiled" in err and "helm-profile measures it" in err
    code, out, err = run(capsys, *argv, "--json", "-q")
    assert (code, err, json.loads(out)["hardware"]["name"]) == (0, "", "this")


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


def test_unused_devices_are_named_whatever_the_strategy(capsys):
    code, out, _ = run(capsys, "--model", "opt-125m", "--hw", "h100x2-hgx", "--strategy", "op-split")
    assert code == 0
    assert "not used     cuda1: the plan uses fewer accelerators" in out


def test_completion_scripts(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--completion", "bash"])
    assert ended.value.code == 0
    assert "--kv-offload" in capsys.readouterr().out
