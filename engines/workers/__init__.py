"""Scripts that run in the interpreter of an engine, which need not have Helm: each loads a model once and answers
requests, a JSON object on a line, until its input ends."""
