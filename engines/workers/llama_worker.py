"""Drives llama.cpp through the C interface of llama-cpp-python, in an interpreter that has that package.

    python llama_worker.py SETTINGS < requests > answers
    python llama_worker.py --fit    (says whether there is a fit: {"fit": true})

SETTINGS is a JSON object: `model`, `context`, and of `threads`, `threads_batch`, `batch`, `ubatch`, `type_k`,
`type_v`, `flash`, `gpu_layers`, `split_mode`, `tensor_split`, `overrides`, `op_offload`, `repack` and `mmap` those that
are not to be as llama.cpp's programs have them; with `fit`, MiB that stay free of each accelerator, layers and experts
are where llama.cpp's --fit puts them. Requests and answers are JSON objects, one on a line:

    {"test": [prompt, steps, depth]}                        {"seconds": S, "done": true}
    {"run": [token, ..], "output": N, "ignore_eos": false}  {"token": T, "at": S} for every token, then
                                                            {"done": true}

The first answer says that the model is loaded: {"loaded": true, "peak": bytes of resident memory}."""

import ctypes
import json
import os
import random
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

COMPUTED = 256
"""Tokens of a deep cache whose keys and values are computed; those after them repeat these."""
WARM_UP = 64
"""Tokens of a prompt that are evaluated before a run is timed, so that pages of the file are there."""
BATCH, UBATCH = 2048, 512
"""Tokens of a logical and of a physical batch in llama.cpp's programs (common/common.h)."""
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
"""Formats of caches as ggml numbers them (ggml.h, enum ggml_type)."""
FLASH = {"auto": -1, "off": 0, "on": 1}
SPLITS = {"none": 0, "layer": 1, "row": 2}
_FIT = "_Z17common_fit_paramsPKcP18llama_model_paramsP20llama_context_paramsPfP32llama_model_tensor_buft_overridePmj"
FITS: dict[str, tuple[None, ...]] = {
    f"{_FIT}PK22common_fit_extra_model14ggml_log_level": (None,),
    f"{_FIT}14ggml_log_level": (),
}
"""common_fit_params of llama.cpp (common/fit.h), which its programs call for --fit: names with the kinds of parameters
that they stand for, and what is given between the least context and the level of messages."""
FIT_CONTEXT = 4096
"""Tokens below which --fit shortens no context (common/common.h); here contexts are given."""
ERRORS_ALONE = 4
"""The level of messages from which on they are printed (ggml.h, GGML_LOG_LEVEL_ERROR)."""


class BufferRule(ctypes.Structure):
    """A pattern of tensors and the buffer that they live in (llama.h, llama_model_tensor_buft_override)."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer", ctypes.c_void_p))


def main() -> None:
    """Load once, then answer every request."""
    if sys.argv[1] == "--fit":
        import llama_cpp

        sys.stdout.write(json.dumps({"fit": fit_function(Path(llama_cpp.__file__).parent) is not None}) + "\n")
        return
    settings = json.loads(sys.argv[1])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer

    def tell(**said: object) -> None:
        answer.write(json.dumps(said) + "\n")
        answer.flush()

    model = LoadedModel(settings)
    tell(loaded=True, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    for line in sys.stdin:
        request = json.loads(line)
        if "test" in request:
            tell(seconds=test_seconds(model, *request["test"]), done=True)
        else:
            run(model, request, tell)
            tell(done=True)


class LoadedModel:
    """A model with a context, and as many `cells` of its cache filled as tokens were evaluated."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import llama_cpp

        self.api: Any = llama_cpp
        self.api.llama_backend_init()
        self.cells, self.batch = 0, min(settings.get("batch", BATCH), settings["context"])
        self._kept: list[Any] = []
        placed, sized = self._model_parameters(settings), self._context_parameters(settings)
        if "fit" in settings:
            self._fit(settings, placed, sized)
        model = self.api.llama_model_load_from_file(settings["model"].encode(), placed)
        if not model:
            raise SystemExit(f"llama.cpp does not load {settings['model']}")
        self.vocab = self.api.llama_model_get_vocab(model)
        self.context = self.api.llama_init_from_model(model, sized)
        if not self.context:
            raise SystemExit("llama.cpp makes no context with these settings")
        self._sampler = self.api.llama_sampler_init_greedy()

    def _model_parameters(self, settings: dict[str, Any]) -> Any:
        parameters = self.api.llama_model_default_params()
        if "gpu_layers" in settings:
            parameters.n_gpu_layers = settings["gpu_layers"]
        if "split_mode" in settings:
            parameters.split_mode = SPLITS[settings["split_mode"]]
        if "tensor_split" in settings:
            most = self.api.llama_max_devices()
            shares = (ctypes.c_float * most)(*settings["tensor_split"][:most])
            self._kept.append(shares)
            parameters.tensor_split = shares
        if settings.get("overrides"):
            parameters.tensor_buft_overrides = self._overrides(settings["overrides"])
        if not settings.get("repack", True):
            parameters.use_extra_bufts = False
        if not settings.get("mmap", True):
            if hasattr(parameters, "load_mode"):
                parameters.load_mode = self.api.LLAMA_LOAD_MODE_NONE
            else:
                parameters.use_mmap = False
        return parameters

    def _overrides(self, patterns: Sequence[str]) -> Any:
        """Return llama.cpp's array of (pattern, buffer type) for tensors that stay with the CPU."""
        from llama_cpp._ggml import libggml

        libggml.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
        buffer = libggml.ggml_backend_cpu_buffer_type()
        rows = (BufferRule * (len(patterns) + 1))(*[BufferRule(pattern.encode(), buffer) for pattern in patterns])
        self._kept.append(rows)
        return ctypes.cast(rows, ctypes.c_void_p)

    def _fit(self, settings: dict[str, Any], placed: Any, sized: Any) -> None:
        """Have llama.cpp place layers and experts, with `fit` MiB free of each accelerator; where nothing fits it
        leaves all as it is and loads, as its programs do."""
        fit = fit_function(Path(self.api.__file__).parent)
        if fit is None:
            raise SystemExit("this build of llama.cpp has no --fit that can be called")
        devices = self.api.llama_max_devices()
        shares = (ctypes.c_float * devices)()
        rules = (BufferRule * self.api.llama_max_tensor_buft_overrides())()
        margins = (ctypes.c_size_t * devices)(*[settings["fit"] * 2**20] * devices)
        self._kept += [shares, rules]
        fit(settings["model"].encode(), ctypes.byref(placed), ctypes.byref(sized), shares, rules, margins)

    def _context_parameters(self, settings: dict[str, Any]) -> Any:
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch = settings["context"], self.batch
        parameters.n_ubatch = min(settings.get("ubatch", UBATCH), self.batch)
        parameters.n_threads = settings.get("threads") or physical_cores()
        parameters.n_threads_batch = settings.get("threads_batch") or parameters.n_threads
        for name in ("type_k", "type_v"):
            if name in settings:
                setattr(parameters, name, TYPES[settings[name]])
        flash = settings.get("flash", "auto")
        if hasattr(parameters, "flash_attn_type"):
            parameters.flash_attn_type = FLASH[flash]
        else:
            parameters.flash_attn = flash == "on"
        if not settings.get("op_offload", True):
            parameters.op_offload = False
        parameters.no_perf = True
        return parameters

    def evaluate(self, tokens: Sequence[int]) -> None:
        """Evaluate tokens on top of those that are cached, and wait until that is done."""
        for start in range(0, len(tokens), self.batch):
            part = tokens[start : start + self.batch]
            array = (ctypes.c_int32 * len(part))(*part)
            code = self.api.llama_decode(self.context, self.api.llama_batch_get_one(array, len(part)))
            if code:
                raise SystemExit(f"llama.cpp does not evaluate {len(tokens)} tokens after {self.cells}: code {code}")
        self.api.llama_synchronize(self.context)
        self.cells += len(tokens)

    def choose(self) -> int:
        """Return the likeliest token after those that were evaluated."""
        return int(self.api.llama_sampler_sample(self._sampler, self.context, -1))

    def ends(self, token: int) -> bool:
        """Whether a token ends a sequence."""
        return bool(self.api.llama_vocab_is_eog(self.vocab, token))

    def words(self) -> int:
        """Return how many tokens there are."""
        return int(self.api.llama_vocab_n_tokens(self.vocab))

    def keep(self, cells: int) -> bool:
        """Keep the first `cells` of the cache; return whether it can end there: states of recurrent layers are those
        after the last token alone."""
        memory = self.api.llama_get_memory(self.context)
        if cells == 0:
            self.api.llama_memory_clear(memory, False)
        elif self.cells < cells or not self.api.llama_memory_seq_rm(memory, 0, cells, -1):
            return False
        self.cells = cells
        return True


def fit_function(package: Path) -> Callable[..., int] | None:
    """Return what --fit calls of the llama.cpp in a package's folder, after the package has loaded its libraries; None
    in builds without it. It takes (file, model's parameters, context's, shares, rules, margins in bytes)."""
    for library in common_libraries(package):
        for name, between in FITS.items():
            function: Any = getattr(library, name, None)
            if function is not None:
                function.restype = ctypes.c_int
                return partial(_fitted, function, between)
    return None


def _fitted(function: Callable[..., int], between: Sequence[None], *given: object) -> int:
    return function(*given, ctypes.c_uint32(FIT_CONTEXT), *between, ERRORS_ALONE)


def common_libraries(package: Path) -> Iterator[ctypes.CDLL]:
    """Yield the libraries of llama.cpp's programs beside those of a package."""
    for folder in (package / "lib", package.parent / "lib"):
        for place in sorted(folder.glob("libllama-common.*")):
            try:
                yield ctypes.CDLL(str(place))
            except OSError:
                continue


def test_seconds(model: LoadedModel, prompt: int, steps: int, depth: int) -> float:
    """Return the seconds of a prompt, or of decode steps, on top of `depth` tokens; before steps is at least one."""
    fill(model, depth if prompt else max(depth, 1))
    draw = random.Random(1)
    tokens = some_tokens(model, prompt or steps, draw)
    start = time.monotonic()
    if prompt:
        model.evaluate(tokens)
    else:
        for token in tokens:
            model.evaluate([token])
    return time.monotonic() - start


def some_tokens(model: LoadedModel, count: int, draw: random.Random) -> list[int]:
    """Return tokens drawn alike from all."""
    words = model.words()
    return [draw.randrange(words) for _ in range(count)]


def fill(model: LoadedModel, depth: int) -> None:
    """Have `depth` tokens in the cache and no more."""
    if model.keep(depth):
        return
    model.keep(0)
    tokens = some_tokens(model, depth, random.Random(0))
    model.evaluate(tokens[:COMPUTED])
    if depth > COMPUTED and not deepen(model, depth):
        model.evaluate(tokens[COMPUTED:])


def run(model: LoadedModel, request: dict[str, Any], tell: Callable[..., None]) -> None:
    """Continue a prompt and say every token when it is there, in seconds after the start."""
    prompt, output = request["run"], request["output"]
    model.keep(0)
    model.evaluate(prompt[:WARM_UP])
    for _ in range(2):
        model.evaluate([model.choose()])
    model.keep(0)
    start = time.monotonic()
    model.evaluate(prompt)
    for number in range(output):
        token = model.choose()
        tell(token=token, at=time.monotonic() - start)
        if number + 1 == output or (not request.get("ignore_eos") and model.ends(token)):
            return
        model.evaluate([token])


def deepen(model: LoadedModel, depth: int) -> bool:
    """Give the cache `depth` tokens that repeat those it has; return whether llama.cpp took them.

    Computing many takes minutes, and no step's time depends on what the values are. Only caches of one kind, all of
    whose layers keep every token, are written as `repeated` reads them."""
    api, context = model.api, model.context
    state = (ctypes.c_uint8 * api.llama_state_seq_get_size(context, 0))()
    api.llama_state_seq_get_data(context, state, len(state), 0)
    try:
        deep = repeated(memoryview(state).cast("B"), depth)
    except (struct.error, MemoryError):
        return False
    taken = api.llama_state_seq_set_data(context, (ctypes.c_uint8 * len(deep)).from_buffer(deep), len(deep), 0)
    if taken != len(deep):
        model.keep(0)
        model.evaluate(some_tokens(model, COMPUTED, random.Random(0)))
        return False
    model.cells = depth
    return True


def repeated(state: memoryview, depth: int) -> bytearray:
    """Return a sequence's state as llama.cpp writes it (llama-kv-cache.cpp, state_write), with `depth` cells."""
    magic, sequence, streams, cells = struct.unpack_from("<IiII", state)
    deep = bytearray(struct.pack("<IiII", magic, sequence, streams, depth))
    for position in range(depth):
        deep += struct.pack("<iIi", position, 1, 0)
    at = 16 + 12 * cells
    transposed, layers = struct.unpack_from("<II", state, at)
    deep += state[at : at + 8]
    at += 8
    for values in (False,) * layers + (True,) * layers:
        if values and transposed:
            size, count = struct.unpack_from("<II", state, at + 4)
        else:
            size, count = struct.unpack_from("<Q", state, at + 4)[0], 1
        deep += state[at : at + 12]
        at += 12
        for _ in range(count):
            row = bytes(state[at : at + size * cells])
            deep += (row * (depth // cells + 1))[: size * depth]
            at += size * cells
    return deep


def physical_cores(folder: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the threads that llama.cpp's programs take: one for every core, however many threads a core has."""
    siblings = {file.read_text() for file in folder.glob("cpu[0-9]*/topology/thread_siblings")}
    count = os.cpu_count() or 4
    return len(siblings) or (count if count <= 4 else count // 2)


if __name__ == "__main__":
    main()
