"""Imported for its effect: bytecode is kept even where the environment says otherwise, as `make` has it.

Else the workers compile PyTorch, every test and Helm anew, and so does every process that tests start."""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
