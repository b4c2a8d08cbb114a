"""Trees under `syncline run`: torch-ipc's own tests with their numbers, and what a Python user does beyond them."""

from __future__ import annotations

import pytest
from conftest import Ended, Stage, command


def run(stage: Stage, nodes: int, code: str, **more: str) -> Ended:
    ended = stage.run(
        code, under=[command("syncline"), "run", "-n", str(nodes)], env={"SYNCLINE_TIMEOUT": "15", **more}
    )
    assert ended.status == 0, str(ended)
    assert ended.out.count("done") == nodes, str(ended)
    return ended


# One job does what eight of torch-ipc's tests do: a job takes longer to start than to reduce.
ROWS = """
    import numpy as np
    import syncline as sl

    tree = sl.tree()
    node, nodes = tree.node, tree.nodes
    everyone = range(1, nodes + 1)
    add = lambda mine, received: mine + received

    assert tree.all_reduce(node, add) == (sum(everyone), nodes)
    assert tree.all_reduce(node) == (sum(everyone), nodes)
    assert tree.all_reduce([node, 2 * node], add)[0] == [sum(everyone), 2 * sum(everyone)]

    def add_in_place(mine, received):
        mine += received
    for reduce in ["sum", add, add_in_place]:
        tensor = np.full(10, node, "float32")
        result, contributors = tree.all_reduce(tensor, reduce)
        assert result is tensor and contributors == nodes and tensor.sum() == 10 * sum(everyone), tensor

    one, two = np.full(10, node, "float64"), np.full(10, node - 1, "float64")
    (first, second), _ = tree.all_reduce((one, two), add)
    assert (first is one, second is two) == (True, True)
    assert (one.sum(), two.sum()) == (10 * sum(everyone), 10 * (sum(everyone) - nodes))

    assert tree.scatter(node) == 1
    tree.barrier()
    print("done", flush=True)
"""


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_the_rows_of_torch_ipc_hold(stage: Stage, nodes: int) -> None:
    run(stage, nodes, ROWS)


@pytest.mark.parametrize(("nodes", "plan"), [(8, "tree:4"), (8, "tree:8"), (5, "ring"), (4, "chain"), (3, "halving")])
def test_they_hold_whatever_the_plan(stage: Stage, nodes: int, plan: str) -> None:
    run(stage, nodes, ROWS, SYNCLINE_PLAN=plan)


def test_nodes_that_run_out_of_data_take_part_until_nobody_has_any(stage: Stage) -> None:
    ended = run(
        stage,
        4,
        """
        import numpy as np
        import syncline as sl

        tree = sl.tree()
        for reduce in ["sum", lambda mine, received: mine + received]:
            for value, zero in [
                (lambda: tree.node, lambda leaf, index: 0),
                (lambda: np.full(3, tree.node, "float32"), lambda leaf, index: leaf.fill(0)),
                (lambda: {"a": tree.node, "b": [np.full(3, float(tree.node))]}, lambda leaf, index: 0 * leaf),
            ]:
                total, counts = 0, []
                for _ in range(tree.node):
                    result, contributors = tree.all_reduce(value(), reduce)
                    result = result["b"][0] if isinstance(result, dict) else result
                    total += float(np.ravel(result)[0])
                    counts.append(contributors)
                result, contributors = tree.all_reduce(None, reduce, zero)
                assert contributors == 0, contributors
                assert total == [10, 19, 26, 30][tree.node - 1], (tree.node, total)
                assert counts == [4, 3, 2, 1][: tree.node], counts
        print("done", total, flush=True)
        """,
    )
    assert {"10.0", "19.0", "26.0", "30.0"} <= set(ended.out.split()), ended


def test_numbers_arrays_and_structures_of_all_kinds_are_reduced(stage: Stage) -> None:
    run(
        stage,
        3,
        """
        import collections
        import numpy as np
        import ml_dtypes
        import syncline as sl

        tree = sl.tree()
        node = tree.node
        for dtype in ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "int16", "int32", "int64", "uint8"]:
            for op, right in [("sum", 6), ("prod", 6), ("min", 1), ("max", 3), ("mean", 2), ("and", 0), ("or", 3)]:
                array = np.full((2, 3), node, dtype)
                floats = array.dtype.kind in "fV"
                if op == "mean" and not floats:
                    try:
                        tree.all_reduce(array, op)
                    except sl.DTypeMismatch as error:
                        assert "mean" in str(error)
                        continue
                    raise AssertionError("the mean of whole numbers")
                if floats and op in ("and", "or"):
                    right = 1
                result, contributors = tree.all_reduce(array, op)
                assert result is array and contributors == 3
                assert (array.astype("float64") == right).all(), (dtype, op, array)

        # Layouts: in place whatever the strides; a new array where that is not allowed.
        base = np.arange(24.0).reshape(4, 6) * node
        part = base[1:4:2, ::-2]
        expected = part / node * 6
        assert tree.all_reduce(part)[0] is part and (part == expected).all()
        assert (base[0] == np.arange(6.0) * node).all()
        turned = np.asfortranarray(np.full((2, 3), float(node)))
        assert tree.all_reduce(turned)[0] is turned and (turned == 6).all()
        fixed = np.full(4, float(node))
        fixed.flags.writeable = False
        result, _ = tree.all_reduce(fixed)
        assert (result == 6).all() and (fixed == node).all()
        alone = np.array(float(node))
        assert tree.all_reduce(alone)[0] is alone and alone == 6
        truth = np.array([True, node == 1, False])
        assert tree.all_reduce(truth, "and")[0] is truth and truth.tolist() == [True, False, False]
        empty = np.empty(0, "float32")
        assert tree.all_reduce(empty)[0] is empty
        raw = bytearray([node, 10 * node])
        assert tree.all_reduce(raw)[0] is raw and list(raw) == [6, 60]

        # Numbers, and nesting: the same containers come back, with the same arrays in them.
        assert tree.all_reduce(1.5 * node) == (9.0, 3)
        assert tree.all_reduce(node, "mean") == (2.0, 3)
        assert tree.all_reduce(node == 2, "or") == (True, 3)
        assert tree.all_reduce(np.float32(node))[0] == np.float32(6)
        assert type(tree.all_reduce(np.float32(1))[0]) is np.float32
        Pair = collections.namedtuple("Pair", "left right")
        weight, bias = np.full((2, 2), node, "float32"), np.full(2, node, ml_dtypes.bfloat16)
        model = {"z": [weight, 1], "a": Pair(bias, {"lr": 0.5 * node}), "n": {2: node, 10: -node}}
        result, _ = tree.all_reduce(model)
        assert list(result) == ["z", "a", "n"] and result["z"][0] is weight and result["a"].left is bias
        assert result["z"][1] == 3 and result["a"].right == {"lr": 3.0} and result["n"] == {2: 6, 10: -6}
        assert (weight == 6).all() and (bias == 6).all() and model["n"] == {2: node, 10: -node}
        assert tree.walk_table({"b": [1, 2], "a": 3}, lambda leaf: leaf * 10) == {"b": [10, 20], "a": 30}

        for value in ["text", {"a": "text"}, object(), {1: 0, "one": 0}, np.zeros(2, "complex64"), 2**70]:
            try:
                tree.all_reduce(value)
            except sl.ShapeMismatch:
                pass
            else:
                raise AssertionError(value)
        for reduce in ["average", 7]:
            try:
                tree.all_reduce(1, reduce)
            except sl.ConfigurationError:
                pass
            else:
                raise AssertionError(reduce)
        print("done", flush=True)
        """,
    )


def test_a_function_is_called_once_per_leaf_and_child(stage: Stage) -> None:
    ended = run(
        stage,
        4,
        """
        import numpy as np
        import syncline as sl

        tree = sl.tree()
        calls = []
        def longest(mine, received):
            calls.append(type(mine).__name__)
            return max(mine, received, key=len)
        result, _ = tree.all_reduce({"a": "x" * tree.node, "b": [b"y" * tree.node]}, longest)
        assert result == {"a": "xxxx", "b": [b"yyyy"]}
        total = tree.all_reduce(len(calls))[0]
        assert total == 2 * 3, total  # two leaves, and four nodes have three children between them

        calls.clear()
        array = np.full(1_000_000, tree.node, "float32")
        def largest(mine, received):
            calls.append(1)
            np.maximum(mine, received, out=mine)
        result, contributors = tree.all_reduce(array, largest)
        assert result is array and contributors == 4 and (array == 4).all()
        assert tree.all_reduce(len(calls))[0] == 3
        print("done", flush=True)
        """,
    )
    assert ended.err == "", ended


def test_a_function_that_raises_is_heard_where_it_raised(stage: Stage) -> None:
    ended = stage.run(
        """
        import syncline as sl

        tree = sl.tree()
        def bad(mine, received):
            raise ZeroDivisionError("on purpose")
        try:
            tree.all_reduce(1, bad)
        except ZeroDivisionError as error:
            print("mine:", error, flush=True)
        except sl.SynclineError as error:
            print("theirs:", error, flush=True)
        """,
        under=[command("syncline"), "run", "-n", "2"],
        env={"SYNCLINE_TIMEOUT": "3"},
    )
    assert "mine: on purpose" in ended.out, ended
    assert "theirs: all_reduce 0: the function failed on rank 0: " in ended.out, ended
    assert "raised ZeroDivisionError: on purpose" in ended.out, ended


def test_values_travel_between_nodes(stage: Stage) -> None:
    run(
        stage,
        3,
        """
        import numpy as np
        import ml_dtypes
        import syncline as sl

        sl.init()
        tree = sl.tree()
        node = tree.node
        assert (node, tree.nodes, tree.nodeIndex, tree.numNodes, tree.gpu) == (sl.rank() + 1, 3, node, 3, None)
        assert repr(tree) == f"<syncline.Tree: node {node} of 3>"

        value = {"step": 7, "name": "é", "raw": b"\\0\\1", "none": None, "yes": True, "list": [1.5, [2]]}
        assert tree.broadcast(value if node == 2 else None, root=2) == value
        array = np.full((2, 2), node, "float32")
        assert tree.scatter(array) is array and (array == 1).all()
        model = {"w": np.full(100_000, float(node)), "b": (np.full(3, node), 5 * node)}
        result = tree.broadcast(model, root=3)
        assert result["w"] is model["w"] and (model["w"] == 3).all()
        assert (model["b"][0] == 3).all() and result["b"][1] == 15
        halves = tree.broadcast(np.full(3, 1.5, ml_dtypes.bfloat16) if node == 1 else None)
        assert halves.dtype == ml_dtypes.bfloat16 and (halves == 1.5).all()

        gathered = tree.gather({"node": node, "more": np.arange(node)}, root=2)
        if node == 2:
            assert [each["node"] for each in gathered] == [1, 2, 3] and gathered[2]["more"].tolist() == [0, 1, 2]
        else:
            assert gathered is None
        assert tree.all_gather("x" * node) == ["x", "xx", "xxx"]
        letters = tree.all_to_all([f"{node} to {other}" for other in (1, 2, 3)])
        assert letters == [f"{other} to {node}" for other in (1, 2, 3)]
        part = tree.reduce_scatter(np.arange(7, dtype="int32") * node, "sum")
        assert part.tolist() == [[0, 6, 12], [18, 24], [30, 36]][node - 1] and part.dtype == np.int32
        assert isinstance(tree.net_stats(), dict) and tree.netStats() == tree.net_stats()
        assert tree.allReduce(node, "max") == (3, 3)
        for wrong in [lambda: tree.broadcast(1, root=4), lambda: tree.gather(1, root=0), lambda: tree.all_to_all([1])]:
            try:
                wrong()
            except (sl.ConfigurationError, sl.ShapeMismatch):
                pass
            else:
                raise AssertionError("refused")
        tree.barrier()
        print("done", flush=True)
        """,
    )


def test_a_reduction_runs_while_python_does_something_else(stage: Stage) -> None:
    run(
        stage,
        2,
        """
        import numpy as np
        import syncline as sl

        tree = sl.tree()
        arrays = [np.full(100_000, float(tree.node)), np.full(3, tree.node)]
        future = tree.all_reduce_async(arrays)
        crooked = np.full((4, 4), float(tree.node)).T[::2]
        second = tree.all_reduce_async({"c": crooked, "n": tree.node}, "max")
        later = tree.all_reduce(tree.node)  # in turn, after those that were issued before
        result, contributors = future.wait()
        assert result[0] is arrays[0] and contributors == 2 and (arrays[0] == 3).all() and (arrays[1] == 3).all()
        assert future.done() and future.wait() is future.result()
        assert second.wait(10)[0]["n"] == 2
        assert (crooked == 2).all() and later == (3, 2)
        print("done", flush=True)
        """,
    )


def test_a_structure_under_way_is_one_operation_that_others_may_wait_for_at_once(stage: Stage) -> None:
    run(
        stage,
        2,
        """
        import numpy as np
        import syncline as sl

        tree = sl.tree()
        model = {"w": np.full((3, 4), 1.0), "b": [np.full(5, float(tree.node)), 7]}
        result, contributors = tree.all_reduce(model) if tree.node == 1 else tree.all_reduce_async(model).wait()
        assert contributors == 2 and result["b"][1] == 14 and (model["w"] == 2).all() and (model["b"][0] == 3).all()
        try:
            tree.all_reduce_async({"w": np.zeros((3, 4) if tree.node == 1 else (4, 3))}).wait()
        except sl.ContractMismatch as error:
            assert "3, 4" in str(error) and "4, 3" in str(error), error
        else:
            raise AssertionError("shapes that differ are told")
        assert tree.all_reduce(1) == (2, 2)
        print("done", flush=True)
        """,
    )


def test_a_function_reduces_while_its_caller_does_something_else(stage: Stage) -> None:
    """The engine's thread calls it; a call by name in front of it and one behind it keep their places."""
    run(
        stage,
        3,
        """
        import threading
        import numpy as np
        import syncline as sl

        tree = sl.tree()
        callers = set()

        def longer(mine, received):
            callers.add(threading.get_ident())
            if isinstance(mine, np.ndarray):
                mine += received
                return None
            return max(mine, received, key=len)

        weights = np.full(5, float(tree.node))
        value = {"w": weights, "name": "x" * tree.node}
        first = tree.all_reduce_async(np.ones(3))
        future = tree.all_reduce_async(value, longer)
        last = tree.all_reduce(1)
        result, contributors = future.wait()
        assert contributors == 3 and result["name"] == "xxx" and result["w"] is weights and (weights == 6).all()
        assert future.done() and future.wait() is future.result() and last == (3, 3)
        assert (first.wait()[0] == 3).all()
        assert threading.get_ident() not in callers
        assert tree.node != 1 or len(callers) == 1     # node 1 has children in every plan

        def fails(mine, received):
            raise LookupError("on purpose")

        future = tree.all_reduce_async([1], fails)
        for _ in range(2):
            try:
                future.wait()
            except LookupError as error:
                assert str(error) == "on purpose"
            except sl.SynclineError:
                assert tree.node != 1
            else:
                raise AssertionError("what a function raises is told")
        print("done", flush=True)
        """,
    )


def test_calls_that_differ_are_shown_to_everybody_with_both_places(stage: Stage) -> None:
    ended = run(
        stage,
        3,
        """
        import numpy as np
        import syncline as sl

        tree = sl.tree()
        odd = tree.node == 2
        def caught(call):
            try:
                call()
            except sl.ContractMismatch as error:
                return str(error)
            raise AssertionError("nobody noticed")
        def one(): tree.all_reduce(np.zeros(3))        # LINE ONE
        def two(): tree.all_reduce(np.zeros((3, 1)))   # LINE TWO
        texts = [
            caught(two if odd else one),
            caught(lambda: tree.all_reduce(np.zeros(3, "int32" if odd else "float32"))),
            caught(lambda: tree.all_reduce(np.zeros(3), "max" if odd else "min")),
            caught(lambda: tree.all_reduce({"a" if odd else "b": 1.0})),
            caught(lambda: tree.barrier() if odd else tree.all_gather(1)),
            caught(lambda: tree.all_reduce({"a" if odd else "b": 1.0}, lambda mine, received: mine)),
        ]
        source = open(__file__).read().splitlines()
        place = lambda mark: next(number for number, line in enumerate(source, 1) if line.endswith(mark))
        lines = [place("# LINE ONE"), place("# LINE TWO")]
        for text in texts:
            assert "rank 1" in text and __file__ in text, text
        assert all(f"{__file__}:{line}" in texts[0] for line in lines), (lines, texts[0])
        assert all(text == texts[0] for text in tree.all_gather(texts[0]))
        assert tree.all_reduce(1) == (3, 3)  # and they are still in step

        # Places that called before are remembered, by instruction: two lines of one function are told apart.
        def either(first, array):
            if first:
                tree.all_reduce(array)                 # LINE THREE
            else:
                tree.all_reduce(array)                 # LINE FOUR
        for turn in range(4):
            either(turn % 2 == 0, np.zeros(3))
        text = caught(lambda: either(odd, np.zeros((3, 1) if odd else 3)))
        assert all(f"{__file__}:{place(mark)}" in text for mark in ("# LINE THREE", "# LINE FOUR")), text
        print("done", flush=True)
        """,
    )
    assert ended.err == "", ended


def test_an_unknown_reducer_or_a_missing_value_is_said_at_once(stage: Stage) -> None:
    ended = stage.run(
        """
        import syncline as sl
        tree = sl.NullTree()
        for call in [lambda: tree.all_reduce(), lambda: tree.all_reduce(None, zero=lambda leaf, index: 0)]:
            try:
                call()
            except sl.ConfigurationError as error:
                print(error)
        assert tree.all_reduce(5) == (5, 1) and tree.all_reduce(zero=lambda leaf, index: 0) == (0, 0)
        assert tree.scatter("x") == "x" and tree.gather(1) == [1]
        assert tree.all_gather(2) == [2] and tree.all_to_all([3]) == [3]
        assert tree.net_stats() == {} and (tree.node, tree.nodes) == (1, 1)
        assert tree.all_reduce([1, 2], lambda mine, received: None) == ([1, 2], 1)
        tree.barrier()
        tree.close()
        """
    )
    assert ended.status == 0, str(ended)
    assert "there is no value" in ended.out, ended
    assert "no earlier call" in ended.out, ended
