# import multiverso.
import multiverso as mv
# Init multiverso.
mv.init()
# Get total number of workers.
print(mv.workers_num())
# Get the id for current worker.
print(mv.worker_id())
# if the worker is master worker.
print(mv.is_master_worker())

# Here is your code to create tables, train models and sync values.

# Shutdown multiverso
mv.shutdown()
