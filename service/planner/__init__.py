"""The planner behind HTTP: questions in, plans out, and jobs for what takes longer. Nothing of a plan is decided
here."""
