"""A llama-server command that Helm writes, as what drives llama.cpp takes it: settings of the worker, or flags of its
programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from helmsman.planner.settings.command_flags import GivenFlag, whole_number, words_of
from helmsman.planner.settings.llama_cpp import without_program
from helmsman.planner.settings.llama_grammar import GRAMMAR, MARGIN_MIB
from helmsman.schemas.errors import UsageError

_ALL_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""llama.cpp's pattern of all experts (--cpu-moe)."""
_ON = ("on", "1", "true", "enabled")

_PASSED: dict[str, str] = {
    "--n-gpu-layers": "-ngl", "--n-cpu-moe": "-ncmoe", "--batch-size": "-b", "--ubatch-size": "-ub",
    "--cache-type-k": "-ctk", "--cache-type-v": "-ctv", "--threads": "-t", "--split-mode": "-sm",
}  # fmt: skip
"""Flags that llama-bench has with the same values."""


@dataclass(frozen=True)
class LlamaCommand:
    """The flags of a command; those that are left out are as llama.cpp's programs have them."""

    flags: tuple[GivenFlag, ...]

    @classmethod
    def of(cls, command: str) -> "LlamaCommand":
        """Return the flags of a command. Raises UsageError for one that llama.cpp does not have."""
        return cls(tuple(GRAMMAR.given(without_program(words_of(command)))))

    @cached_property
    def _last(self) -> dict[str, GivenFlag]:
        return {flag.name: flag for flag in self.flags}

    def _value(self, name: str) -> str | None:
        flag = self._last.get(name)
        return None if flag is None else next(iter(flag.values), "on")

    def _number(self, name: str) -> int | None:
        flag = self._last.get(name)
        return None if flag is None else whole_number(flag)

    @property
    def flash(self) -> str:
        """Return `on`, `off` or `auto`."""
        said = self._value("--flash-attn") or "auto"
        return "auto" if said == "auto" else "on" if said in _ON else "off"

    @property
    def fit_target(self) -> int | None:
        """Return MiB that stay free of each accelerator where llama.cpp is told to place layers and experts itself;
        None where it is not."""
        if self._value("--fit") not in _ON:
            return None
        target = self._number("--fit-target")
        return MARGIN_MIB if target is None else target

    def worker_settings(self, model: Path, context: int) -> dict[str, object]:
        """Return the settings of `llama_worker` for a file and room for `context` tokens. Raises UsageError for what
        its package cannot be told."""
        layers = self._value("--n-gpu-layers")
        settings: dict[str, object | None] = {
            "model": str(model.absolute()),
            "context": context,
            "threads": self._number("--threads"),
            "threads_batch": self._number("--threads-batch"),
            "batch": self._number("--batch-size"),
            "ubatch": self._number("--ubatch-size"),
            "type_k": self._value("--cache-type-k"),
            "type_v": self._value("--cache-type-v"),
            "flash": self.flash,
            "gpu_layers": None if layers in (None, "auto", "all") else self._number("--n-gpu-layers"),
            "split_mode": self._value("--split-mode"),
            "tensor_split": self._tensor_split(),
            "overrides": [*self._overrides()],
            "fit": self.fit_target,
            "op_offload": False if "--no-op-offload" in self._last else None,
            "repack": False if "--no-repack" in self._last else None,
            "mmap": False if "--no-mmap" in self._last or self._value("--load-mode") == "none" else None,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _tensor_split(self) -> list[float] | None:
        said = self._value("--tensor-split")
        return None if said is None else [float(share) for share in said.replace("/", ",").split(",")]

    def _overrides(self) -> Iterator[str]:
        """Yield the patterns of tensors that stay with the CPU. Raises UsageError for another buffer."""
        for flag in self.flags:
            for rule in flag.values[0].split(",") if flag.name == "--override-tensor" else ():
                pattern, _, buffer = rule.rpartition("=")
                if buffer != "CPU":
                    problem = f"llama-cpp-python cannot put tensors into {buffer}"
                    raise UsageError(problem, field="engine", value=rule, remedy="put llama-server on the path")
                yield pattern
        if "--cpu-moe" in self._last:
            yield _ALL_EXPERTS
        for layer in range(self._number("--n-cpu-moe") or 0):
            yield rf"blk\.{layer}{_ALL_EXPERTS}"

    def bench_words(self) -> list[str]:
        """Return the flags of llama-bench, which has no context, no sequences, and one number of threads."""
        words = []
        for flag in self.flags:
            if flag.name in _PASSED:
                words += [_PASSED[flag.name], *flag.values]
            elif flag.name == "--cpu-moe":
                words += ["-ncmoe", "999"]
            elif flag.name == "--override-tensor":
                words += ["-ot", flag.values[0].replace(",", ";")]
            elif flag.name == "--tensor-split":
                words += ["-ts", flag.values[0].replace(",", "/")]
            elif flag.name == "--no-op-offload":
                words += ["-nopo", "1"]
            elif flag.name == "--flash-attn" and self.flash != "auto":
                words += ["-fa", "1" if self.flash == "on" else "0"]
            elif flag.name == "--no-mmap":
                words += ["-mmp", "0"]
        target, context = self.fit_target, self._value("--ctx-size")
        if target is not None:
            words += ["-fitt", str(target), *([] if context is None else ["-fitc", context])]
        return words

    def server_words(self) -> list[str]:
        """Return the flags of llama-server as they were given, without the file of the model."""
        return [word for flag in self.flags if flag.name != "--model" for word in words_of(flag.text)]
