"""`helm-plan` in this process: its exit code and output, or its plan."""

import json

from helmsman.cli.plan import main


def run(capsys, *argv):
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def planned(capsys, *argv):
    code, out, err = run(capsys, *argv, "--json")
    assert code == 0, err or out
    assert err == ""
    return json.loads(out)
