"""The program that is solved, in numbers alone: block configurations as columns, how many blocks each gets, a bound."""
