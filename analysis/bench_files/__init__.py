"""Results of others' benchmarks and of our runs as measured runs: llama-bench, vLLM's bench, AIPerf, Traces."""
