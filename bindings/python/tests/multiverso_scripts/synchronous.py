"""Synchronous servers: every process gets the same results."""

import multiverso as mv
mv.init(sync=True)
tbh = mv.MatrixTableHandler(4, 2, [[1, 1]] * 4)
# every process calls add and get in the same order and for the same times
for i in range(10):
    tbh.add([[1, 2]] * 4)
    print("round", i, tbh.get().tolist())
    tbh.add([[-1, -1]], row_ids=[i % 4])
    print("rows", i, tbh.get(row_ids=[0, 3]).tolist())
mv.shutdown()
