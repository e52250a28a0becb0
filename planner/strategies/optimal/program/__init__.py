"""The integer program: block configurations as columns, block counts as variables, a bound by weak duality."""
