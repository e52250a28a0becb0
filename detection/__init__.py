"""Detects the hardware of this machine from files of the system and outputs of programs; measures nothing."""
