"""Block configurations: the device of each operation, the memory of each weight, and the plan rules for both."""
