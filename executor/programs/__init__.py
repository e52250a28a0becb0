"""Programs: the passes of a plan as submissions to device queues and copy engines, prepared once, run often."""
