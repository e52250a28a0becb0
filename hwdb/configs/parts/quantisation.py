"""Reads `quantization_config`: how the released files store weights.

The model is the same; its operations stay those of the native format."""

from collections.abc import Mapping, Sequence

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.module_names import joined_names
from helmsman.schemas.native_quantisation import NativeQuantisation, StoredModules

_MAX_GROUP = 2**20
_GROUP_OF_MX = 32
"""Values that share a scale in the formats of the Open Compute Project (MXFP4)."""

_EXPERT_MODULES = ("model.layers.*.mlp.experts",)

_GPTQ = """
batch_size block_name_to_quantize cache_block_outputs checkpoint_format damp_percent dataset desc_act exllama_config
is_marlin_format max_input_length meta model_file_base_name model_name_or_path model_seqlen
module_name_preceding_first_block pad_token_id static_groups sym tokenizer true_sequential use_cuda_fp16 use_exllama
"""
_FP8 = """
act_per_tensor activation_scheme dequantize fmt kv_cache_quant_algo producer quant_algo quantized_layers scale_fmt
weight_per_tensor
"""
_TENSORS = """
format global_compression_ratio kv_cache_scheme quantization_status sparsity_config transform_config version
"""

WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "awq": frozenset({"version", "zero_point", "backend", "do_fuse", "fuse_max_seq_len", "exllama_config"}),
    "gptq": frozenset(_GPTQ.split()),
    "fp8": frozenset(_FP8.split()),
    "mxfp4": frozenset({"dequantize"}),
    "modelopt": frozenset({"quantized_layers", "kv_cache_scheme", "producer", "quant_algo"}),
    "compressed-tensors": frozenset(_TENSORS.split()),
}
"""Keys of each method that change neither which weights are quantised nor how wide their values are."""

_IN_GROUP = frozenset({"input_activations", "output_activations", "format"})


def native_quantisation(config: Config, pattern: str) -> NativeQuantisation | None:
    """Return what `quantization_config` states, None where there is none; `pattern`: the letters of the model's layers.

    Raises BadInputError for a method, and for a key of one, that is not known."""
    holder = config.holder("quantization_config")
    if not holder.has("quantization_config"):
        return None
    fields = holder.inner("quantization_config")
    # Files of ModelOpt's that lack the method name the algorithm instead.
    method = fields.text("quant_method", "modelopt" if fields.has("quant_algo") else None)
    match method:
        case "awq" | "gptq":
            stored, kept = _by_groups(fields), fields.texts("modules_to_not_convert")
        case "fp8":
            stored, kept = _fp8(config, fields), _kept(fields, "modules_to_not_convert", "ignored_layers")
        case "mxfp4":
            part = StoredModules(values="float", bits=4, group=_GROUP_OF_MX, modules=_EXPERT_MODULES)
            stored, kept = (part,), fields.texts("modules_to_not_convert")
        case "modelopt" | "compressed-tensors":
            stored, kept = _config_groups(fields, pattern), _kept(fields, "ignore", "exclude_modules")
        case _:
            raise fields.wrong("quant_method", "not covered", f"covered: {', '.join(WITHOUT_EFFECT)}")
    _check_keys(fields, WITHOUT_EFFECT[method])
    return NativeQuantisation(method=method, stored=stored, kept=joined_names(kept, pattern))


def _check_keys(fields: Fields, without_effect: frozenset[str]) -> None:
    for inner, key in fields.unread():
        if key not in (without_effect if inner is fields else _IN_GROUP):
            raise inner.wrong(key, "not known in a quantization_config of this method", "choose another model")
    fields.settle()


def _kept(fields: Fields, *keys: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for key in keys for name in fields.texts(key)))


def _by_groups(fields: Fields) -> tuple[StoredModules, ...]:
    """Return AWQ's and GPTQ's integers; a group of -1 is a whole row."""
    if fields.has("modules_in_block_to_quantize") or fields.content.get("dynamic"):
        key = "dynamic" if fields.content.get("dynamic") else "modules_in_block_to_quantize"
        raise fields.wrong(key, "not covered: other formats for some modules", "choose another model")
    fields.read.add("dynamic")
    fields.flag("lm_head", False)
    bits = fields.integer("bits", low=2, high=8)
    group = fields.integer("group_size", 128, low=-1, high=_MAX_GROUP)
    return (StoredModules(values="int", bits=bits, group=group if group > 0 else None),)


def _fp8(config: Config, fields: Fields) -> tuple[StoredModules, ...]:
    """Return values of 8 bits in blocks of rows and columns; experts of 4 bits where that is said (DeepSeek V4)."""
    part = StoredModules(values="float", bits=8)
    if fields.has("weight_block_size"):
        sizes = fields.numbers("weight_block_size", _MAX_GROUP, count=2)
        if not all(sizes):
            raise fields.wrong("weight_block_size", "rows and columns of a block are expected", "correct the list")
        part = StoredModules(values="float", bits=8, rows=sizes[0], group=sizes[1])
    experts = _fp8_experts(config, fields)
    return (part,) if experts is None else (part, experts)


def _fp8_experts(config: Config, fields: Fields) -> StoredModules | None:
    """Return how experts of 4 bits are stored, None where they are like the other modules."""
    config.fields.read.add("expert_dtype")
    if fields.has("moe_quant_algo"):
        if fields.text("moe_quant_algo") != "NVFP4":
            raise fields.wrong("moe_quant_algo", "not covered", "covered: NVFP4")
        fields.read.update(("config_groups", "ignore"))
        group = fields.integer("group_size", 16, high=_MAX_GROUP)
        return StoredModules(values="float", bits=4, group=group, modules=_EXPERT_MODULES)
    holder = fields if fields.has("expert_dtype") else config.fields
    match holder.text("expert_dtype", "fp8"):
        case "fp8":
            return None
        case "fp4":
            return StoredModules(values="float", bits=4, group=_GROUP_OF_MX, modules=_EXPERT_MODULES)
    raise holder.wrong("expert_dtype", "not covered", "covered: fp4, fp8")


def _config_groups(fields: Fields, pattern: str) -> tuple[StoredModules, ...]:
    """Return what each of the `config_groups` says about its targets; "Linear" stands for all linear layers."""
    groups = fields.inner("config_groups")
    if not groups.content:
        raise fields.wrong("config_groups", "a group is expected", "add how weights are stored")
    return tuple(_group(groups.inner(key), pattern) for key in groups.content)


def _group(group: Fields, pattern: str) -> StoredModules:
    weights = group.inner("weights")
    kind = weights.text("type", "int")
    if kind not in ("int", "float"):
        raise weights.wrong("type", "not covered", "covered: int, float")
    targets = group.texts("targets")
    size = weights.integer("group_size", -1, low=-1, high=_MAX_GROUP)
    rows = 1
    if weights.has("block_structure"):
        rows, size = weights.numbers("block_structure", _MAX_GROUP, count=2)
    weights.settle()
    return StoredModules(
        values="int" if kind == "int" else "float",
        bits=weights.integer("num_bits", low=2, high=8),
        group=size if size > 0 else None,
        rows=max(rows, 1),
        modules=() if _every_linear(targets) else joined_names(targets, pattern),
    )


def _every_linear(targets: Sequence[str]) -> bool:
    return not targets or tuple(targets) == ("Linear",)
