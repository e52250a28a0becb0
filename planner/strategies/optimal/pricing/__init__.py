"""What block configurations ask for: seconds of lanes, bytes of memories, by the cost model and the lowering."""
