"""Greedy decoding with drafts: the same tokens whatever is drafted, and the draft head against transformers' own."""

import json
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from expert_layouts import divided_plan
from hybrid_models import COMMON as HYBRID_COMMON
from hybrid_models import FAMILIES as HYBRID_FAMILIES
from hybrid_models import written_hybrid
from latent_models import COMMON, FAMILIES
from numpy.typing import NDArray
from plans import make_plan
from quick_probes import quick_probes
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.cli.run import main
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.drafts.mtp_head import MtpHead
from helmsman.executor.drafts.rejected_states import RejectedStates
from helmsman.executor.engine import Engine
from helmsman.executor.passes.generation import DraftCount, Tokens
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Drafting, ExpertSlots, Residence, Select
from helmsman.schemas.trace import read_trace
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, DRAFTS, VOCAB = 150, 24, 3, 512
SHAPE = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=256)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Write a DeepSeek-V3 with a draft head, as helm-make-checkpoint does."""
    return write_model(tmp_path_factory.mktemp("drafts"), "deepseek_v3")


def write_model(folder: Path, family: str) -> tuple[Path, Model]:
    """Write a tiny model of a family with a draft head; return its directory."""
    from transformers import AutoConfig

    sizes: dict[str, Any] = {**COMMON, **FAMILIES[family], "max_position_embeddings": 256, "vocab_size": VOCAB}
    config = AutoConfig.for_model(family, **sizes, eos_token_id=None)
    config.num_nextn_predict_layers = 1
    config.save_pretrained(folder / "config")
    model = load_model(str(folder / "config" / "config.json"))
    write_checkpoint(model, folder / "checkpoint", fmt="f32")
    return folder / "checkpoint", load_model(str(folder / "checkpoint" / "config.json"))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Write a Qwen3.5 with experts, whose draft head lies apart."""
    from transformers import AutoConfig

    folder, family = tmp_path_factory.mktemp("hybrid"), "qwen3_5_moe_text"
    sizes = {**HYBRID_COMMON, **HYBRID_FAMILIES[family], "max_position_embeddings": 256, "vocab_size": VOCAB}
    config = AutoConfig.for_model(family, **sizes)
    config.mtp_num_hidden_layers = 1
    config.save_pretrained(folder / "config")
    write_checkpoint(load_model(str(folder / "config" / "config.json")), folder / "checkpoint", fmt="f32")
    return folder / "checkpoint", load_model(str(folder / "checkpoint" / "config.json"))


def prompts(batch: int) -> Tokens:
    """Return int32 (batch, PROMPT) tokens."""
    return np.random.default_rng(3).integers(0, VOCAB, (batch, PROMPT)).astype(np.int32)


@dataclass
class Replayed:
    """Drafts tokens (sequences, tokens) that were made before: the first `right` of a step, and others after them."""

    tokens: Tokens
    right: int
    after: int = 0

    def follow(self, following: Tokens, hidden: NDArray[np.float32], past: int) -> None:
        """Go on behind what was verified."""
        assert hidden.shape[:2] == following.shape
        self.after = past + following.shape[1] + 1 - PROMPT

    def propose(self, count: int) -> Tokens:
        """Return drafts of which so many are right."""
        drafts = self.tokens[:, self.after : self.after + count].copy()
        drafts[:, self.right :] = (drafts[:, self.right :] + 1) % VOCAB
        return drafts


@dataclass
class Watched:
    """Keeps what a draft head followed and what it proposed first, with its logits before and after."""

    head: MtpHead
    followed: list[tuple[Tokens, NDArray[np.float32]]] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    proposed: list[Tokens] = field(default_factory=list)

    def follow(self, following: Tokens, hidden: NDArray[np.float32], past: int) -> None:
        """Keep it, and pass it on."""
        self.followed.append((following.copy(), hidden.copy()))
        self.head.follow(following, hidden, past)

    def propose(self, count: int) -> Tokens:
        """Pass it on, and keep the outcome."""
        self.logits.append(self.head.logits().copy())
        drafts = self.head.propose(count)
        self.logits.append(self.head.logits().copy())
        self.proposed.append(drafts)
        return drafts


@pytest.mark.parametrize(
    ("on_cpu", "batch"),
    [(2, 2), pytest.param(None, 1, marks=pytest.mark.nightly), pytest.param(0, 1, marks=pytest.mark.nightly)],
)
def test_drafts_change_no_token(written: tuple[Path, Model], on_cpu: int | None, batch: int) -> None:
    change_no_token(*written, on_cpu, batch)


@pytest.mark.parametrize(("on_cpu", "batch"), [(2, 2), pytest.param(None, 1, marks=pytest.mark.nightly)])
def test_rejected_drafts_put_states_back(hybrid: tuple[Path, Model], on_cpu: int | None, batch: int) -> None:
    """Of delta rules on both sides of a split."""
    change_no_token(*hybrid, on_cpu, batch)


def test_states_that_rejected_drafts_have_changed_show(
    hybrid: tuple[Path, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, model = hybrid
    monkeypatch.setattr(RejectedStates, "take_back", lambda states, taken: None)
    with Engine.load(make_plan(model, 2, workload=SHAPE), directory, Machine.this(), draft_tokens=DRAFTS) as engine:
        given = np.zeros((1, PROMPT + OUTPUT), np.int32)
        engine.draft(Replayed(given, DRAFTS), DRAFTS)
        stale = engine.generate(prompts(1), OUTPUT, ignore_eos=True)
    with Engine.load(make_plan(model, 2, workload=SHAPE), directory, Machine.this()) as engine:
        assert engine.generate(prompts(1), OUTPUT, ignore_eos=True).tokens != stale.tokens


def test_a_head_apart_is_that_of_its_files(hybrid: tuple[Path, Model]) -> None:
    """A block of transformers between what vLLM puts around it: norms stored around zero, the embedding first."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    directory, model = hybrid
    ids = prompts(1)
    with Engine.load(make_plan(model, 2, workload=SHAPE), directory, Machine.this(), draft_tokens=1) as engine:
        assert isinstance(engine.drafter, MtpHead)
        watched = Watched(engine.drafter)
        engine.draft(watched, 1)
        made = engine.generate(ids, 3, ignore_eos=True)
    stored = load_file(directory / "model.safetensors")
    main = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    own = {name.removeprefix("mtp."): value for name, value in stored.items() if name.startswith("mtp.")}
    block = deepcopy(main.model.layers[3])
    block.load_state_dict({n.removeprefix("layers.0."): v for n, v in own.items() if n.startswith("layers.")})

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + own[f"{name}.weight"])

    tokens = torch.from_numpy(np.concatenate([ids, made.chosen[:1].T], axis=1)).long()
    mask = torch.full((PROMPT, PROMPT), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        hidden = main(tokens[:, :-1], output_hidden_states=True).hidden_states[-1]
        embedded = main.model.embed_tokens(tokens[:, 1:])
        pairs = torch.cat([normed(embedded, "pre_fc_norm_embedding"), normed(hidden, "pre_fc_norm_hidden")], -1)
        joined = pairs @ own["fc.weight"].T
        places = main.model.rotary_emb(joined, torch.arange(PROMPT)[None])
        left = block(joined, position_embeddings=places, attention_mask=mask)
        logits = main.lm_head(normed(left[0] if isinstance(left, tuple) else left, "norm"))[0, -1]
    assert np.abs(watched.logits[0][0] - logits.numpy()).max() <= 1e-3 * logits.abs().max()


def change_no_token(directory: Path, model: Model, on_cpu: int | None, batch: int) -> None:
    """Draft with a model's own head, and with one that is right about as many tokens as it is told."""
    ids, plan = prompts(batch), make_plan(model, on_cpu, workload=SHAPE.model_copy(update={"batch": batch}))
    with Engine.load(plan, directory, Machine.this()) as engine:
        expected = engine.generate(ids, OUTPUT, ignore_eos=True)
    assert expected.drafts is None
    with Engine.load(plan, directory, Machine.this(), draft_tokens=DRAFTS) as engine:
        own = engine.generate(ids, OUTPUT, ignore_eos=True)
        assert own.tokens == expected.tokens
        assert own.drafts is not None and own.drafts.drafted > 0
        for right in range(DRAFTS + 1):
            engine.draft(Replayed(expected.chosen.T, right), DRAFTS)
            made = engine.generate(ids, OUTPUT, ignore_eos=True)
            assert made.tokens == expected.tokens
            steps = len(made.iterations) - made.prompt_passes
            assert steps == -(-(OUTPUT - 1) // (1 + right))
            assert made.drafts is not None and made.drafts.accepted == batch * (OUTPUT - 1 - steps)
        engine.draft(Replayed(expected.chosen.T, 0), DRAFTS)
        rejected = engine.generate(ids, 1 + DRAFTS, ignore_eos=True)
        assert rejected.drafts == DraftCount(drafted=batch * (2 + 1), accepted=0)


@pytest.mark.parametrize(
    "misses",
    ["host", pytest.param("fetched", marks=pytest.mark.nightly), pytest.param("divided", marks=pytest.mark.nightly)],
)
def test_drafts_choose_experts_that_are_cached_in_slots(written: tuple[Path, Model], misses: str) -> None:
    """A step looks the experts of all of its tokens up at once."""
    directory, model = written
    plan = divided_plan(model, ExpertLayout(0, 2), SHAPE)
    compute = [rule for rule in plan.compute if rule.select.names != "experts_*" or rule.phase is not None]
    slots = ExpertSlots(
        select=Select(names="experts_*"),
        memory="vram",
        slots=6,
        misses=misses,
        fetched=0.5 if misses == "divided" else None,
    )
    rules = tuple(compute) if misses == "fetched" else plan.compute
    plan = plan.model_copy(update={"expert_slots": (slots,), "compute": rules})
    with Engine.load(plan, directory, Machine.this()) as engine:
        expected = engine.generate(prompts(1), OUTPUT, ignore_eos=True)
    with Engine.load(plan, directory, Machine.this(), draft_tokens=DRAFTS) as engine:
        assert engine.generate(prompts(1), OUTPUT, ignore_eos=True).tokens == expected.tokens
        engine.draft(Replayed(expected.chosen.T, DRAFTS), DRAFTS)
        made = engine.generate(prompts(1), OUTPUT, ignore_eos=True)
    assert made.tokens == expected.tokens
    counts = made.expert_cache[-1]
    assert len(counts.hits) == len(made.iterations)
    assert max(hits + missed for hits, missed in zip(counts.hits[1:], counts.misses[1:], strict=True)) > 4


def test_sequences_end_within_accepted_drafts(written: tuple[Path, Model]) -> None:
    directory, model = written
    plan = make_plan(model, workload=SHAPE)
    with Engine.load(plan, directory, Machine.this(), draft_tokens=DRAFTS) as engine:
        expected = engine.generate(prompts(1), OUTPUT, ignore_eos=True)
        last = int(expected.chosen[6, 0])
        end = expected.tokens[0].index(last) + 1
        engine.draft(Replayed(expected.chosen.T, DRAFTS), DRAFTS)
        seen = list[int]()

        def stop(chosen: Tokens) -> NDArray[np.bool_]:
            seen.append(int(chosen[0]))
            return chosen == last

        ended = engine.generate(prompts(1), OUTPUT, on_token=stop, ignore_eos=True)
    assert ended.tokens[0] == expected.tokens[0][:end] == tuple(seen)


@pytest.mark.parametrize("family", ["deepseek_v3", pytest.param("glm4_moe_lite", marks=pytest.mark.nightly)])
def test_the_head_is_that_of_transformers(tmp_path: Path, family: str) -> None:
    from transformers import AutoModelForCausalLM
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    directory, model = write_model(tmp_path, family)
    ids, plan = prompts(1), make_plan(model, 2, workload=SHAPE)
    with Engine.load(plan, directory, Machine.this(), draft_tokens=2) as engine:
        assert isinstance(engine.drafter, MtpHead)
        watched = Watched(engine.drafter)
        engine.draft(watched, 2)
        made = engine.generate(ids, 4, ignore_eos=True)
    main = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    main.config.num_mtp_layers, main.config.mtp_mlp_layer_types = 1, ["sparse"]  # GLM's class has none
    main._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{model.layers}\."]  # of released files: other numbers
    head = MtpModel.from_pretrained(main).eval()
    tokens = torch.from_numpy(np.concatenate([ids, made.chosen[:1].T], axis=1)).long()
    assert np.array_equal(np.concatenate([following for following, _ in watched.followed[:1]], axis=1), tokens[:, 1:])
    cache = MtpCache(config=main.config.get_mtp_config())
    with torch.no_grad():
        states = main(tokens[:, :-1], output_hidden_states=True).hidden_states[-1]
        places = torch.arange(1, PROMPT + 1)[None]
        first = head.forward_layer(0, states, places, cache, input_ids=tokens[:, 1:])[:, -1:]
        draft = head._project_to_logits(first)[:, -1]
        second = head.forward_layer(0, first, places[:, -1:] + 1, cache, input_ids=draft.argmax(-1)[:, None])
        chained = head._project_to_logits(second)[:, -1]
    for got, expected in zip(watched.logits[:2], (draft, chained), strict=True):
        assert np.abs(got - expected.numpy()).max() <= 1e-3 * expected.abs().max()
    assert watched.proposed[0].tolist() == [[int(draft.argmax()), int(chained.argmax())]]


def test_a_head_without_all_of_its_tensors_is_refused_by_name(written: tuple[Path, Model], tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    directory, model = written
    plan, file = make_plan(model, workload=SHAPE), "model.safetensors"
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    kept = load_file(directory / file)
    del kept["model.layers.3.eh_proj.weight"]
    save_file(kept, tmp_path / file)
    with Engine.load(plan, tmp_path, Machine.this()) as engine:
        assert engine.drafter is None
    with pytest.raises(BadInputError, match=r"model\.layers\.3\.eh_proj\.weight: missing"):
        Engine.load(plan, tmp_path, Machine.this(), draft_tokens=1)


def test_plans_that_draft_nothing_are_refused(written: tuple[Path, Model], tmp_path: Path) -> None:
    directory, model = written
    written_hybrid("qwen3_5_moe_text", tmp_path)
    hybrid = load_model(str(tmp_path / "config.json"))
    plan = make_plan(model, 2, workload=SHAPE)
    headless = plan.model_copy(update={"model": model.model_copy(update={"drafts": ()})})
    streamed = plan.model_copy(
        update={"residence": (Residence(select=Select(names="head*"), memory="dram", format="f32"), *plan.residence)}
    )
    hybrid_shape = SHAPE.model_copy(update={"prompt_tokens": 8, "output_tokens": 8, "context": 32})
    for refused, options, reason in (
        (headless, {}, "has no head that drafts tokens"),
        (make_plan(hybrid, workload=hybrid_shape), {}, "has no head that drafts tokens"),
        (make_plan(small_model("qwen3"), workload=SHAPE), {}, "has no head that drafts tokens"),
        (streamed, {}, "shares the model's head"),
        (plan, {"draft_tokens": 17}, "not a number of drafts"),
        (plan, {"growing": True}, "growing caches"),
        (plan, {"record_routing": True}, "record no routing"),
    ):
        with pytest.raises((BadInputError, UsageError), match=reason):
            Engine.load(refused, directory, Machine.this(), **{"draft_tokens": 1, **options})


def test_drafts_are_verified_greedily_from_the_start(written: tuple[Path, Model]) -> None:
    directory, model = written
    with Engine.load(make_plan(model, workload=SHAPE), directory, Machine.this(), draft_tokens=1) as engine:
        with pytest.raises(UsageError, match="likeliest tokens"):
            engine.generate(prompts(1), 2, choose=lambda logits: logits.argmax(1).astype(np.int32))
        engine.generate(prompts(1), 2)
        with pytest.raises(UsageError, match="start of a prompt"):
            engine.generate(prompts(1)[:, :4], 2, past=PROMPT)


def test_the_command_reports_what_became_of_drafts(
    written: tuple[Path, Model], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_probes(monkeypatch.setattr)
    directory, model = written
    (tmp_path / "plan.json").write_text(make_plan(model, 2, workload=SHAPE).to_json())
    (tmp_path / "tokens.json").write_text(json.dumps(prompts(1)[0].tolist()))
    trace = tmp_path / "trace.parquet"
    files = ["--tokens", str(tmp_path / "tokens.json"), "--checkpoint", str(directory)]
    run = [str(tmp_path / "plan.json"), *files, "--ignore-eos", "--output-tokens", "8"]
    assert main([*run, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert "drafts" not in expected
    assert main([*run, "--draft-tokens", "2", "--trace", str(trace), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tokens"] == expected["tokens"]
    counts, steps = report["drafts"], {span.iteration for span in read_trace(trace).spans if span.phase == "decode"}
    assert counts["passes"] == len(steps) == 7 - counts["accepted"]
    assert counts["drafted"] >= counts["accepted"]
    drafting = Drafting(
        device="loopback", memory="vram", tokens=2, acceptance=0.5, size=1000, draft=1e-3, verify=1e-3, expected=1.75,
        tokens_per_second=1.0,
    )  # fmt: skip
    planned = make_plan(model, 2, workload=SHAPE).model_copy(update={"drafting": drafting})
    (tmp_path / "plan.json").write_text(planned.to_json())
    for more, drafts in ((), True), (("--draft-tokens", "0", "--output-tokens", "1"), False):
        assert main([*run, *more, "--json"]) == 0
        assert ("drafts" in json.loads(capsys.readouterr().out)) == drafts, more
    temperature, depth, torch_run = ("--temperature", "1"), ("--depth", "4"), ("--backend", "torch")
    for more, reason in ((temperature, "likeliest"), (depth, "--depth"), (torch_run, "torch")):
        assert main([*run, "--draft-tokens", "2", *more]) == 2
        error = capsys.readouterr().err.strip()
        assert reason in error
        assert "\n" not in error
