"""The smallest job: who am I, how many are we, and one moment when all of us are here."""

import syncline as sl

sl.init()
print(f"rank {sl.rank()} of {sl.size()}")
sl.barrier()
