"""The totals of `make test` are right for every runner it calls."""

import subprocess
from pathlib import Path

import pytest

COUNT = Path(__file__).resolve().parent.parent / "count-tests"


def counted(log: str) -> tuple[int, int, int]:
    output = subprocess.run([COUNT], input=log, capture_output=True, text=True, check=True).stdout
    passed, failed, skipped = map(int, output.split())
    return passed, failed, skipped


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("     Summary [   0.005s] 12 tests run: 12 passed, 3 skipped", (12, 0, 3)),
        ("     Summary [  61.1s] 14 tests run: 10 passed (1 slow), 2 failed, 2 timed out, 0 skipped", (10, 4, 0)),
        ("\x1b[32;1m     Summary\x1b[0m [   0.005s] \x1b[1m2\x1b[0m tests run: \x1b[1m2\x1b[0m \x1b[32;1mpassed\x1b[0m, 0 skipped", (2, 0, 0)),
        ("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n"
         "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s", (6, 2, 1)),
        ("3 passed in 0.05s", (3, 0, 0)),
        ("1 failed, 2 passed, 1 skipped, 1 error in 1.20s", (2, 2, 1)),
        ("=== 4 passed, 1 skipped in 61.10s (0:01:01) ===", (4, 0, 1)),
        ("7 passed, 1 failed\nskipped: mpirun is not installed", (7, 1, 1)),
        ("test kill_one ... ok\nthe words 5 passed in a sentence\nrunning 3 tests", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_closing_lines_are_added_up(log: str, expected: tuple[int, int, int]) -> None:
    assert counted(log) == expected
