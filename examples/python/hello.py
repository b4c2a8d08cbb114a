"""Three lines: join the job, say who we are, wait for the others.

Alone:               python hello.py
Four processes:      syncline run -n 4 python hello.py
Under an MPI:        mpirun -np 4 python hello.py
"""

import syncline as sl

sl.init()
print(sl.rank(), sl.size())
sl.barrier()
