"""Runs in the peer's environment: a Qwen3 checkpoint as a bf16 GGUF file, decoded by llama.cpp on request.

python llama_worker.py CHECKPOINT GGUF THREADS STEPS < prompts (a JSON list a line) > tokens/s a line"""

import json
import os
import struct
import sys
import time
from pathlib import Path

import numpy as np

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def convert(checkpoint: Path, target: Path) -> None:
    """Write the checkpoint as GGUF; one-dimensional tensors in f32, as llama.cpp wants them."""
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(str(target), "qwen3")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(4096)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    writer.add_token_merges(["< 0"])
    writer.add_token_types([1] * config["vocab_size"])
    for name, values, bf16 in tensors(checkpoint):
        if bf16 and values.ndim == 2:
            writer.add_tensor(renamed(name), values.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            single = (values.astype(np.uint32) << 16).view(np.float32) if bf16 else values.astype(np.float32)
            writer.add_tensor(renamed(name), single)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(checkpoint: Path):
    """(name, raw values, is bf16) of every tensor of every safetensors file."""
    for file in sorted(checkpoint.glob("*.safetensors")):
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        data = np.memmap(file, np.uint8, "r", 8 + length)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            kind = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}[entry["dtype"]]
            yield name, np.asarray(data[start:end]).view(kind).reshape(entry["shape"]), entry["dtype"] == "BF16"


def renamed(name: str) -> str:
    """llama.cpp's name of a Hugging Face tensor."""
    if not name.startswith("model.layers."):
        ends = {
            "model.embed_tokens.weight": "token_embd",
            "model.norm.weight": "output_norm",
            "lm_head.weight": "output",
        }
        return f"{ends[name]}.weight"
    _, _, layer, *rest = name.split(".")
    return f"blk.{layer}.{NAMES['.'.join(rest[:-1])]}.weight"


def main() -> None:
    """Convert once, then decode every prompt."""
    checkpoint, target, threads, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    target = target.with_name(f"{checkpoint.name}-{target.name}")
    if not target.exists():
        convert(checkpoint, target)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from llama_cpp import Llama

    model = Llama(str(target), n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    for line in sys.stdin:
        model.reset()
        model.eval(json.loads(line))
        start = time.monotonic()
        for step in range(steps):
            model.eval([step % 256])
        answer.write(f"{steps / (time.monotonic() - start)}\n")
        answer.flush()


if __name__ == "__main__":
    main()
