"""The master-worker example: one process validates and prints."""

import multiverso as mv
mv.init()
tbh = mv.ArrayTableHandler(3)
# train your model
tbh.add([mv.worker_id() + 1] * 3)
mv.barrier()
if mv.is_master_worker():
    # validate your model
    # print your validation results
    print("validated", tbh.get().tolist())
