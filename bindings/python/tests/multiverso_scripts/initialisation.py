"""The initialisation example: everybody starts from the master's model."""

import numpy

import multiverso as mv
mv.init()
size = 10
params = numpy.arange(size) + 100.0 * mv.worker_id()

# Create ArrayTableHandler for syncing parameters. In the constructor, Only
# the init_value from the master worker will be used in the initial model
tbh = mv.ArrayTableHandler(size, params)
# Wait for finishing the initializing phase.
mv.barrier()
# Get the initial model from the server.
params = tbh.get()

print("params", params.tolist())
mv.shutdown()
