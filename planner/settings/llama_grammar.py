"""The flags of llama.cpp's server and tools, with the number of their values.

Names and values are those of the parser in `libllama-common` of llama-cpp-python 0.3.36, and of
tools/server/README.md of ggml-org/llama.cpp, which its `llama-gen-docs` writes."""

from helmsman.planner.settings.command_flags import CommandGrammar, flags

VERSION = "of llama-cpp-python 0.3.36"
"""The package whose copy of llama.cpp names, values and defaults are from."""
SOURCE = "ggml-org/llama.cpp: tools/server/README.md, common/arg.cpp"
"""The documents of that copy."""

PROGRAMS = ("llama-server", "llama-cli", "llama-completion", "llama-fit-params", "llama-perplexity", "server", "main")
"""Programs that take these flags; `server` and `main` are what older builds call them."""

MARGIN_MIB = 1024
"""MiB that stay free of every accelerator's memory: llama.cpp's default --fit-target."""

UBATCH, BATCH = 512, 2048
"""Tokens of a physical and of a logical batch where nothing is said."""

_PLACED = (
    *flags("placed", 0, "-cmoe --cpu-moe", "--no-op-offload"),
    *flags(
        "placed", 1, "-c --ctx-size", "-ngl --gpu-layers --n-gpu-layers", "-ot --override-tensor",
        "-ncmoe --n-cpu-moe", "-ncffn --n-cpu-ffn", "-sm --split-mode", "-ts --tensor-split", "-ub --ubatch-size",
        "-b --batch-size", "-np --parallel", "-ctk --cache-type-k", "-ctv --cache-type-v", "-fit --fit",
        "-fitt --fit-target",
    ),
)  # fmt: skip
_UNPRICED = (
    *flags(
        "unpriced", 0, "-nkvo --no-kv-offload", "--swa-full", "-nr --no-repack", "--repack", "--no-host", "--mlock",
        "--no-mmap", "--spec-default", "--mtp", "--dflash", "--eagle3",
    ),
    *flags(
        "unpriced", 1, "-t --threads", "-tb --threads-batch", "-lm --load-mode", "-lzm --lazy-mode",
        "--numa", "-dev --device", "-mg --main-gpu", "-C --cpu-mask", "-Cr --cpu-range", "--cpu-strict", "--prio",
        "--poll", "-Cb --cpu-mask-batch", "-Crb --cpu-range-batch", "--cpu-strict-batch", "--prio-batch",
        "--poll-batch", "--rpc", "--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled",
        "-fitc --fit-ctx", "--kv-unified-per-slot", "-md --model-draft --spec-draft-model", "--spec-type",
        "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", "--draft --draft-n --draft-max "
        "--spec-draft-n-max", "--draft-min --draft-n-min --spec-draft-n-min", "--draft-p-min --spec-draft-p-min",
        "-devd --device-draft --spec-draft-device", "-ctkd --cache-type-k-draft --spec-draft-type-k",
        "-ctvd --cache-type-v-draft --spec-draft-type-v", "-td --threads-draft --spec-draft-threads",
        "-tbd --threads-batch-draft --spec-draft-threads-batch", "-hfd -hfrd --hf-repo-draft --spec-draft-hf",
        "-mm --mmproj", "-ctxcp --swa-checkpoints --ctx-checkpoints", "-cram --cache-ram",
    ),
    *flags("unpriced", 2, "--control-vector-layer-range"),
    *flags("unpriced", -1, "-fa --flash-attn"),
)  # fmt: skip
_DRAFTS = (
    *flags(
        "unpriced", 0, "-cmoed --cpu-moe-draft --spec-draft-cpu-moe", "--spec-draft-backend-sampling",
        "--no-spec-draft-backend-sampling",
    ),
    *flags(
        "unpriced", 1, "-Cd --cpu-mask-draft --spec-draft-cpu-mask", "-Crd --cpu-range-draft --spec-draft-cpu-range",
        "-Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch", "--cpu-strict-draft --spec-draft-cpu-strict",
        "--cpu-strict-batch-draft --spec-draft-cpu-strict-batch", "--prio-draft --spec-draft-prio",
        "--prio-batch-draft --spec-draft-prio-batch", "--poll-draft --spec-draft-poll",
        "--poll-batch-draft --spec-draft-poll-batch", "-otd --override-tensor-draft --spec-draft-override-tensor",
        "-ncmoed --n-cpu-moe-draft --spec-draft-ncmoe --spec-draft-n-cpu-moe", "--spec-synth-len", "--spec-synth-rates",
        "--draft-p-split --spec-draft-p-split", "--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max",
        "--spec-ngram-mod-n-match", "--spec-ngram-size-n", "--spec-ngram-size-m", "--spec-ngram-min-hits",
        "--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits",
        "--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits",
        "--spec-ngram-map-k4v-size-n", "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits",
    ),
)  # fmt: skip
_PRESETS = flags(
    "unpriced", 0, "--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default",
    "--fim-qwen-7b-spec", "--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default",
    "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default",
)  # fmt: skip
"""A model with flags of its own."""
_IDLE = (
    *flags(
        "idle", 0, "-h --usage --help", "--version", "--op-offload", "-kvo --kv-offload",
        "-cl --cache-list", "--completion-bash", "--list-devices", "--mmap",
        "--verbose-prompt", "--perf", "--no-perf", "-e --escape", "--no-escape", "--check-tensors", "--log-disable",
        "--log-jsonl", "--no-log-jsonl", "-v --log-verbose --verbose", "--offline", "--log-prefix", "--no-log-prefix",
        "--log-timestamps", "--no-log-timestamps", "--ignore-eos", "-bs --backend-sampling", "-kvu --kv-unified",
        "-no-kvu --no-kv-unified", "--cache-idle-slots", "--no-cache-idle-slots", "--context-shift",
        "--no-context-shift", "-sp --special", "--warmup", "--no-warmup", "--spm-infill", "-cb --cont-batching",
        "-nocb --no-cont-batching", "--mmproj-auto", "--no-mmproj --no-mmproj-auto", "--mmproj-offload",
        "--no-mmproj-offload", "--reuse-port", "--cors-credentials", "--no-cors-credentials",
        "--webui-mcp-proxy --ui-mcp-proxy", "--no-webui-mcp-proxy --no-ui-mcp-proxy", "-ag --agent",
        "-no-ag --no-agent", "--webui --ui", "--no-webui --no-ui", "--embeddings --embedding", "--reranking --rerank",
        "--cache-prompt", "--no-cache-prompt", "--metrics", "--props", "--slots", "--no-slots", "--models-autoload",
        "--no-models-autoload", "--jinja", "--no-jinja", "--reasoning-preserve", "--no-reasoning-preserve",
        "--prefill-assistant", "--no-prefill-assistant", "--skip-chat-parsing", "--no-skip-chat-parsing",
        "--lora-init-without-apply", "-st --single-turn", "-cnv --conversation", "-no-cnv --no-conversation",
        "-i --interactive", "-if --interactive-first", "-mli --multiline-input", "--simple-io", "--display-prompt",
        "--no-display-prompt", "--show-timings", "--no-show-timings", "--in-prefix-bos", "-ptc --print-token-count",
    ),
    *flags(
        "idle", 1, "-m --model", "-n --n-predict --predict", "--keep", "--rope-scaling", "--rope-scale",
        "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor",
        "--yarn-beta-slow", "--yarn-beta-fast", "-dt --defrag-thold", "--override-kv", "-mu --model-url",
        "-dr --docker-repo", "-hf -hfr --hf-repo", "-hff --hf-file", "-hft --hf-token", "--log-file", "--log-colors",
        "-lv --verbosity --log-verbosity", "--samplers", "-s --seed", "--sampling-seq --sampler-seq",
        "--temperature --temp", "--top-k", "--top-p", "--min-p", "--top-nsigma --top-n-sigma", "--xtc-probability",
        "--xtc-threshold", "--typical-p --typical", "--repeat-last-n", "--repeat-penalty", "--presence-penalty",
        "--frequency-penalty", "--dry-multiplier", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n",
        "--dry-sequence-breaker", "--adaptive-target", "--adaptive-decay", "--dynatemp-range", "--dynatemp-exp",
        "--mirostat", "--mirostat-lr", "--mirostat-ent", "-l --logit-bias", "--grammar", "--grammar-file",
        "-j --json-schema", "-jf --json-schema-file", "-lcs --lookup-cache-static", "-lcd --lookup-cache-dynamic",
        "-cms --checkpoint-min-step", "-r --reverse-prompt", "--pooling", "-mmu --mmproj-url", "-mmdev --mmproj-device",
        "--image-min-tokens", "--image-max-tokens", "--mtmd-batch-max-tokens", "--video-fps", "-a --alias", "--tags",
        "--video-timestamp-interval", "--video-ffmpeg-dir", "--embd-normalize", "--host", "--port", "--path",
        "--cors-origins", "--cors-methods", "--cors-headers", "--api-prefix", "--webui-config --ui-config",
        "--webui-config-file --ui-config-file", "--tools", "--tools-runtime", "--mcp-servers-config",
        "--mcp-servers-json", "--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file",
        "--chat-template-kwargs", "-to --timeout", "--sse-ping-interval", "--threads-http", "--cache-reuse",
        "--slot-save-path", "--media-path", "--models-dir", "--models-preset", "--models-max", "--reasoning-format",
        "-rea --reasoning", "--reasoning-effort", "--reasoning-budget", "--reasoning-budget-message",
        "--chat-template", "--chat-template-file", "-sps --slot-prompt-similarity", "--sleep-idle-seconds",
        "--log-prompts-dir", "-p --prompt", "-f --file", "-sys --system-prompt", "-sysf --system-prompt-file",
        "-co --color",
        "-bf --binary-file", "--in-prefix", "--in-suffix", "--chunks", "-fitp --fit-print",
    ),
)  # fmt: skip

GRAMMAR = CommandGrammar("llama.cpp", (*_PLACED, *_UNPRICED, *_DRAFTS, *_PRESETS, *_IDLE), joined=False)
"""The flags. `--mmap`, `--no-mmap` and `--mlock` are of builds before `--load-mode`, and read as that."""
