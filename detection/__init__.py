"""What machine this is, found by looking: files of the system and outputs of programs, nothing measured."""
