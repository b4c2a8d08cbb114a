"""The exceptions: their families, what they carry, how they read."""

from __future__ import annotations

import pickle

import pytest
import syncline as sl

FAMILIES: dict[type[sl.SynclineError], type[BaseException]] = {
    sl.PeerLost: ConnectionError,
    sl.Timeout: TimeoutError,
    sl.ContractMismatch: sl.SynclineError,
    sl.AuthError: sl.SynclineError,
    sl.ShapeMismatch: ValueError,
    sl.DTypeMismatch: TypeError,
    sl.UnknownKey: KeyError,
    sl.Closed: sl.SynclineError,
    sl.ConfigurationError: ValueError,
    sl.ForkError: sl.SynclineError,
}


@pytest.mark.parametrize(("kind", "family"), FAMILIES.items())
def test_each_kind_is_a_syncline_error_and_of_its_built_in_family(
    kind: type[sl.SynclineError], family: type[BaseException]
) -> None:
    assert issubclass(kind, sl.SynclineError)
    assert issubclass(kind, family)
    assert kind.__doc__


@pytest.mark.parametrize("kind", [sl.SynclineError, *FAMILIES])
def test_an_error_names_the_culprit_and_reads_as_it_was_written(kind: type[sl.SynclineError]) -> None:
    error = kind("barrier 7: rank 2 is gone", rank=2, host="node7", pid=4711)
    assert (error.rank, error.host, error.pid) == (2, "node7", 4711)
    assert str(error) == "barrier 7: rank 2 is gone"
    assert kind.__module__ == "syncline"
    nobody = kind("nobody is to blame")
    assert (nobody.rank, nobody.host, nobody.pid) == (None, None, None)


@pytest.mark.parametrize("kind", [sl.SynclineError, *FAMILIES])
def test_an_error_survives_the_way_to_another_process(kind: type[sl.SynclineError]) -> None:
    error = kind("gone", rank=2, host="node7", pid=4711)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.rank, again.host, again.pid) == ("gone", 2, "node7", 4711)
